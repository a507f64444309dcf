"""Replaces rows by key."""
