"""Lineage: what jobs, views and maintenance read and write, told as events of OpenLineage."""
