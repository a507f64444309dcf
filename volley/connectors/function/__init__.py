"""Calls a function with the rows of a stream."""
