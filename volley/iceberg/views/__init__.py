"""Materialised views: tables kept equal to a query by the changes of its sources."""
