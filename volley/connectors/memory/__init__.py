"""Rows in memory as a source and as a sink."""
