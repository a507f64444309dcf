"""Webhooks as a source: HTTP requests, answered once they are on disk."""
