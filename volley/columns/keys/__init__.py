"""Equality, order, hashes and buckets of rows by their keys: the only place that decides them."""
