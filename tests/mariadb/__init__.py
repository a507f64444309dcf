"""Tests of change capture from MariaDB, on a real server."""
