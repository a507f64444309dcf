"""Reads data files by field id."""
