"""Tests of joins of streams: against DuckDB over the same rows, and at the ends of their range."""
