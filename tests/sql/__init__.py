"""Whole queries in SQL."""
