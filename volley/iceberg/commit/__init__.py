"""Commits one snapshot per epoch."""
