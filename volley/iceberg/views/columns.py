"""The columns of a view's table: those of its query, and those of Volley's own, which are made anew as needed."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from volley.errors import PlanError, SchemaMismatchError
from volley.iceberg.commit.evolution import evolution
from volley.iceberg.commit.tables import open_table
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.schema.changes import DropColumn, Evolution
from volley.iceberg.schema.types import iceberg_type, is_widened
from volley.iceberg.views.parts import HIDDEN

__all__ = ["needed_changes", "open_view"]


def open_view(config: IcebergSinkConfig, schema: pa.Schema, catalog: Catalog | None) -> Catalog:
    """Open a view's table, or make it, and return its catalog.

    Args:
        config: The view's settings.
        schema: The columns that its query needs.
        catalog: The catalog, if it is open already.

    Raises:
        VolleyError: As for `open_table`.
    """
    config = _evolving(config)
    try:
        return open_table(config, schema, catalog=catalog)[0]
    except SchemaMismatchError:
        # The columns of Volley's own need not fit: they are made anew.
        visible = pa.schema([field for field in schema if not field.name.startswith(HIDDEN)])
        return open_table(config, visible, catalog=catalog)[0]


def needed_changes(config: IcebergSinkConfig, table: Table, schema: pa.Schema) -> Evolution:
    """Return the schema changes that a view's table needs; columns of Volley's own are dropped or made anew.

    Args:
        config: The view's settings.
        table: The freshly loaded table.
        schema: The columns that its query needs.

    Raises:
        SchemaMismatchError: If a change is impossible or not allowed.
        PlanError: If the table has columns that the query has not: their values would be null.
    """
    dropped = Evolution(tuple(DropColumn(field.name) for field in table.schema().fields if _is_stale(field, schema)))
    added = evolution(_evolving(config), dropped.of(table), schema)
    changes = Evolution((*dropped.changes, *added.changes))
    columns = {field.name for field in changes.of(table).schema().fields}
    if extra := sorted(columns - {*schema.names}):
        raise PlanError(
            f"table {config.table_name} has columns that the view's query has not: {', '.join(extra)}",
            hint=f'drop them by the next full refresh: into=config.with_schema_evolution("full", drops={extra})',
        )
    return changes


def _evolving(config: IcebergSinkConfig) -> IcebergSinkConfig:
    """Return the settings by which a view's table follows its query, whose columns may be wider now, unless strict."""
    if config.schema_evolution == "strict":
        return config
    return config.with_schema_evolution("full", config.renames, config.drops)


def _is_stale(column: NestedField, schema: pa.Schema) -> bool:
    """Return True for a column of Volley's own that the query does not need, or needs with other values."""
    if not column.name.startswith(HIDDEN):
        return False
    if column.name not in schema.names:
        return True
    needed = iceberg_type(schema.field(column.name).type)
    return needed != column.field_type and not is_widened(column.field_type, needed)
