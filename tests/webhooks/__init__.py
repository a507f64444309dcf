"""Tests of webhooks: what clients are answered, what is on disk, and who dies in between."""
