"""Views: tables that are kept equal to a query."""
