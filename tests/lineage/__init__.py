"""Lineage: what arrives at an endpoint of OpenLineage."""
