"""Tests of windows: against DuckDB over the same rows, under kills, and at the ends of their range."""
