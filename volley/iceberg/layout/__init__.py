"""Partitioning and sort order of tables."""
