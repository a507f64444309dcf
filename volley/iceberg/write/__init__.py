"""Writes batches into data files."""
