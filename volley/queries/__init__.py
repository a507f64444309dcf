"""Whole queries: SQL texts that become streams."""
