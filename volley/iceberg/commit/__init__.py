"""Commits one snapshot an epoch."""
