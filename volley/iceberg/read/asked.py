"""Plans scans: from the manifests, or by the catalog, where it asks for that."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, Or
from pyiceberg.expressions.literals import StringLiteral
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from volley.errors import CatalogError, ConfigError, SnapshotExpiredError
from volley.iceberg.catalogs.answers import retry_reads
from volley.iceberg.pyiceberg_private.guarded import GuardedCatalog
from volley.iceberg.pyiceberg_private.server_plans import is_planned_by_server
from volley.iceberg.read.entries import Content, EntryStatus, FileEntry, PlannedFile, Residual
from volley.iceberg.read.planning import Plan, plan
from volley.iceberg.schema.types import CHANGED_AT, CHANGED_AT_ID
from volley.iceberg.table import TableRef

__all__ = ["plan_scan"]

_ALL_ROWS = AlwaysTrue()
_CONTENTS = {
    "data": Content.DATA,
    "position-deletes": Content.POSITION_DELETES,
    "equality-deletes": Content.EQUALITY_DELETES,
}
# Types whose values JSON has as Iceberg's Java library reads them, whoever writes them.
_SENT = (
    BooleanType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    StringType,
    DateType,
    TimestampType,
    TimestamptzType,
)


def plan_scan(
    ref: TableRef,
    table: Table,
    snapshot: Snapshot,
    row_filter: BooleanExpression = _ALL_ROWS,
    schema: Schema | None = None,
    added_only: bool = False,
    fields: Iterable[NestedField] = (),
) -> Plan:
    """Return the plan of a scan, as `planning.plan` does, by whoever has to plan it.

    Args:
        fields: The columns that are read.

    Raises:
        CatalogError: If the catalog has to plan it, and can't be reached or fails.
        ConfigError: If a column is read that the catalog, which has to plan it, can't tell.
        ExpressionError: If the filter does not fit the schema.
        SnapshotExpiredError: If the snapshot before one has expired, and the catalog has to plan what that has added.
        StorageError: If a manifest can't be read.
    """
    if not is_planned_by_server(table.io):
        return plan(table.io, table.metadata, snapshot, row_filter, schema, added_only)
    if any(field.field_id == CHANGED_AT_ID for field in fields):
        raise ConfigError(
            f"column {CHANGED_AT} of table {ref.name} can't be read: the catalog has to plan the scans of this table, "
            "and its plans don't tell when files were written",
            hint="leave it out of with_include(…)",
        )
    files = _ask(ref, table, snapshot, row_filter, schema)
    if added_only and snapshot.parent_snapshot_id is not None:
        before = {file.file.path for file in _ask(ref, table, _parent(ref, table, snapshot), row_filter, schema)}
        files = [file for file in files if file.file.path not in before]
    return Plan(files)


def _parent(ref: TableRef, table: Table, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot before one.

    An incremental plan of Iceberg's own handler, 1.12, has the files of its start, too.
    """
    parent = table.metadata.snapshot_by_id(snapshot.parent_snapshot_id or 0)
    if parent is None:
        raise SnapshotExpiredError(
            f"snapshot {snapshot.parent_snapshot_id} of table {ref.name} has expired: what the next one has added "
            "can't be told, as the catalog has to plan the scans of this table",
            hint="start over with fresh=True; keep snapshots longer than readers need them",
        )
    return parent


def _ask(
    ref: TableRef, table: Table, snapshot: Snapshot, row_filter: BooleanExpression, schema: Schema | None
) -> list[PlannedFile]:
    """Return the files of a snapshot, by the catalog's plan."""
    # Names of another schema than the current one may mean other columns to the catalog.
    is_current = schema is None or schema.schema_id == table.metadata.current_schema_id
    sent = _sent(row_filter, table.schema()) if is_current else True
    request = {"snapshot-id": snapshot.snapshot_id, **({} if sent is True else {"filter": sent})}

    def ask() -> tuple[list[dict[str, Any]], FileIO | None]:
        assert isinstance(table.catalog, GuardedCatalog)
        with ref.errors():
            return table.catalog.scan_tasks(table, request)

    asked = {_key(leaf) for leaf in _leaves(sent)}
    try:
        parts, io = retry_reads(ask)
        files = [file for part in parts for file in _files(table.metadata, snapshot, part, asked)]
        return files if io is None else [replace(file, io=io) for file in files]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise CatalogError(
            f"the catalog's plan of table {ref.name} can't be read: {error!r}",
            hint="it differs from Iceberg's REST protocol: ask who runs the catalog",
        ) from error


def _sent(expression: BooleanExpression, schema: Schema) -> Any:
    """Return a filter in JSON that all rows match which match another one; True = all rows.

    Filters for pruning have no negations, so that a part can be left out.
    """
    match expression:
        case And() | Or():
            left, right = _sent(expression.left, schema), _sent(expression.right, schema)
            if left is True or right is True:
                return True if isinstance(expression, Or) else (right if left is True else left)
            return {"type": "and" if isinstance(expression, And) else "or", "left": left, "right": right}
        case AlwaysTrue() | AlwaysFalse():
            return isinstance(expression, AlwaysTrue)
    leaf = json.loads(expression.model_dump_json())
    try:
        data_type = schema.find_type(leaf.get("term"))
    except (ValueError, TypeError):
        return True
    values = [leaf["value"]] if "value" in leaf else leaf.get("values", [])
    is_finite = all(not isinstance(value, float) or math.isfinite(value) for value in values)
    if not isinstance(data_type, _SENT) or None in values or not is_finite:
        return True
    if isinstance(data_type, TimestamptzType):
        values = [value if value.endswith("+00:00") else f"{value}+00:00" for value in values]
        leaf |= {"value": values[0]} if "value" in leaf else {"values": values} if "values" in leaf else {}
    return leaf


def _leaves(expression: Any) -> Iterator[dict[str, Any]]:
    if isinstance(expression, dict):
        below = [expression[name] for name in ("left", "right", "child") if name in expression]
        yield from (leaf for part in below for leaf in _leaves(part)) if below else (expression,)


def _key(leaf: Mapping[str, Any]) -> str:
    values = {"values": sorted(map(str, leaf["values"]))} if "values" in leaf else {}
    return json.dumps({**leaf, **values}, sort_keys=True)


def _files(
    metadata: TableMetadata, snapshot: Snapshot, part: Mapping[str, Any], asked: set[str]
) -> Iterator[PlannedFile]:
    """Yield the files of a part of a plan."""
    # Not a list, from whose end a number below zero would take one.
    deletes = dict(enumerate(_entry(metadata, snapshot, each) for each in part.get("delete-files") or ()))
    for task in part.get("file-scan-tasks") or ():
        residual = task.get("residual-filter", True)
        if residual is False:
            continue
        file = _entry(metadata, snapshot, task["data-file"])
        of_file = tuple(deletes[number] for number in task.get("delete-file-references") or ())
        # What was asked for is filtered anyway; what is more, the catalog wants to be left out.
        is_asked = residual in (True, None) or all(_key(leaf) in asked for leaf in _leaves(residual))
        yield PlannedFile(file, of_file, None if is_asked else _residual(metadata.schema(), residual))


def _residual(schema: Schema, stated: Any) -> Residual:
    expression = bind(schema, BooleanExpression.model_validate(stated), case_sensitive=True)
    ids = extract_field_ids(expression)
    return Residual(Schema(*(field for field in schema.fields if _has_some(field.field_id, schema, ids))), expression)


def _has_some(field_id: int, schema: Schema, ids: set[int]) -> bool:
    """Return True if a column, or a part of it, is one of some fields."""
    return bool(ids & ({field_id} | schema.select(schema.find_column_name(field_id) or "").field_ids))


def _entry(metadata: TableMetadata, snapshot: Snapshot, file: Mapping[str, Any]) -> FileEntry:
    """Return a file of a plan, which tells no sequence numbers, as a manifest has it."""
    return FileEntry(
        EntryStatus.EXISTING,
        snapshot.snapshot_id,
        0,
        0,
        _CONTENTS[file["content"]],
        file["file-path"],
        file["file-format"].upper(),
        file["spec-id"],
        _partition(metadata, file),
        file["record-count"],
        file["file-size-in-bytes"],
        equality_ids=tuple(file.get("equality-ids") or ()),
        split_offsets=tuple(file.get("split-offsets") or ()),
        first_row_id=file.get("first-row-id"),
        referenced_file=file.get("referenced-data-file"),
        blob_offset=file.get("content-offset"),
        blob_size=file.get("content-size-in-bytes"),
    )


def _partition(metadata: TableMetadata, file: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of a file's partition as manifests store them."""
    values = file.get("partition") or []
    fields = metadata.specs()[file["spec-id"]].fields
    if len(values) != len(fields):
        raise ValueError(f"{len(values)} partition values for {len(fields)} fields")
    types = [_type_of(metadata, field.source_id) for field in fields]
    return tuple(
        None if value is None or data_type is None else _stored(value, field.transform.result_type(data_type))
        for value, field, data_type in zip(values, fields, types, strict=True)
    )


def _type_of(metadata: TableMetadata, field_id: int) -> IcebergType | None:
    """Return the type of a field; None for one that no schema has any more."""
    known = [schema for schema in (metadata.schema(), *metadata.schemas) if field_id in schema.field_ids]
    return known[0].find_type(field_id) if known else None


def _stored(value: Any, data_type: IcebergType) -> Any:
    if isinstance(data_type, BinaryType | FixedType):
        return bytes.fromhex(value)
    if isinstance(value, str) and not isinstance(data_type, StringType):
        return StringLiteral(value).to(data_type).value
    return value
