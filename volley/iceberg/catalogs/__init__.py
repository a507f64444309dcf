"""Catalogs: settings, clients, error translation."""
