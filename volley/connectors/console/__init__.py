"""Prints the first rows of each epoch."""
