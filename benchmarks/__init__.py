"""Benchmarks: what Volley costs, and what the same work costs without it."""
