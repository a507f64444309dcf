"""Calls of Volley's functions and of Spark's of the same or nearest name, and where their results differ."""
