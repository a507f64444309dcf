"""Benchmarks: what Volley costs, beside what the same work costs without it, in the same run."""
