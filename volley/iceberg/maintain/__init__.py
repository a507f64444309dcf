"""Orphan files and branches."""
