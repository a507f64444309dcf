"""The columns of a stream that an upsert needs: which they are, checks before a row is written, and the operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadata

from volley.columns.expressions import compile_expression
from volley.columns.roles import ChangeColumns
from volley.errors import ConfigError, SchemaMismatchError
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.modes import History, KeyedMode, Upsert
from volley.iceberg.schema.changes import find

__all__ = [
    *("OLDER", "OLDER_COLUMN", "OLDER_SEQUENCE", "check_keys", "check_nulls", "deletions", "own_fields"),
    *("own_renames", "truncates", "with_computed", "with_own_columns", "without_earlier"),
]

OLDER = "_volley_older"
"""The table's column with the values of an incomplete row that are older than its sequence, or missing."""
OLDER_COLUMN, OLDER_SEQUENCE = "column_id", "sequence"
"""The fields of each: the column's field id, and the sequence of its value; null = no row has had a value of it."""
_DELETES, _TRUNCATES = pa.array(["d", "delete"]), pa.array(["t", "truncate"])
_EARLIER = pa.array(["update_before"])


def with_own_columns(config: IcebergSinkConfig, stream: pa.Schema) -> IcebergSinkConfig:
    """Return a sink's settings with the columns that the stream tells where an upsert names none."""
    if not isinstance(config.commit_mode, Upsert | History):
        return config
    mode = _completed(config.commit_mode, stream)
    if isinstance(mode, History) or (mode.sequence is not None and mode.op_field is not None):
        config.ref.require(
            "branches",
            f"table {config.table_name} can't have a branch that remembers changes, as an upsert by sequence or a "
            "history needs it",
        )
    return replace(config, commit_mode=mode)


def _completed(mode: Upsert | History, stream: pa.Schema) -> Upsert | History:
    own = ChangeColumns.of(stream)
    if not (keys := mode.keys or own.keys):
        raise ConfigError(
            f"{type(mode).__name__}() names no keys, and the stream tells none",
            hint=f'name them: {type(mode).__name__}(["id"]); a PostgresSource tells the primary key while all its '
            "columns are in the stream",
        )
    if isinstance(mode, History):
        if not (order := mode.sequence or own.sequence):
            raise ConfigError(
                "History() names no sequence, and the stream tells none",
                hint='name it: History("id", sequence="updated_at"); PostgresSource(…, sequence=True) tells one',
            )
        unchanged = mode.unchanged_field or own.unchanged
        operation = mode.op_field or own.operation
        return replace(mode, key_fields=keys, sequence=order, op_field=operation, unchanged_field=unchanged)
    sequence = mode.sequence
    if sequence is None and mode.order_by is None:
        sequence = own.sequence or None
    elif sequence is not None and own.unchanged is not None and not own.sequence:
        raise ConfigError(
            f"the stream leaves out values that have not changed (column {own.unchanged!r}), and tells no sequence",
            hint="PostgresSource(…, sequence=True), which Upsert() takes as its sequence; or leave sequence out: such "
            "a stream comes in order",
        )
    known = replace(
        mode,
        sequence=sequence,
        key_fields=keys,
        op_field=mode.op_field or own.operation,
        unchanged_field=mode.unchanged_field or own.unchanged,
    )
    if sequence is not None:
        return known
    return replace(
        known,
        order_by=mode.order_by or own.order,
        write_order=mode.write_order and (mode.order_by is not None or own.order is None),
    )


def check_keys(mode: KeyedMode, stream: pa.Schema) -> None:
    """Check that a stream has the columns of the mode."""
    kind = type(mode).__name__.lower()
    for name in mode.named:
        if name not in stream.names and name not in mode.computed:
            raise ConfigError(f"{kind} by unknown column {name!r}", hint=f"the stream has {', '.join(stream.names)}")
    own = own_fields(mode, stream)
    if taken := set(own.names).intersection(stream.names):
        raise ConfigError(
            f"the stream has the column {min(taken)!r}, which the {kind} computes",
            hint="rename or drop it before the sink, or let it have another name: an expression of sequence by "
            '.alias(…), the columns of a history by valid_from="…", valid_to="…" and is_current="…"',
        )
    for key in mode.keys:
        data_type = stream.field(key).type
        if pa.types.is_floating(data_type) or pa.types.is_nested(data_type):
            raise ConfigError(
                f"key field {key!r} is of type {data_type}, whose values don't tell rows apart",
                hint="use columns of whole numbers, decimals, texts, dates, times or bytes as keys",
            )
    for name in mode.sequence_fields:
        column = own if name in mode.computed else stream
        if pa.types.is_nested(data_type := column.field(name).type) or not _is_ordered(data_type):
            raise ConfigError(
                f"sequence {name!r} is of type {data_type}, whose values have no order",
                hint="use columns of numbers, texts, dates, times or bytes",
            )
    if mode.order_by is not None and not _is_ordered(data_type := stream.field(mode.order_by).type):
        raise ConfigError(
            f"order_by {mode.order_by!r} is of type {data_type}, whose values have no order",
            hint="use a column of numbers, texts, dates, times or bytes, or a struct of such",
        )
    if not mode.write_order and mode.order_by != mode.op_field and not _is_whole(stream, mode.order_by):
        raise ConfigError(
            f"write_order is False, and order_by is {mode.order_by!r}: not a column of whole numbers",
            hint="name such a column, or let it be written",
        )
    if mode.op_field is not None and (data_type := stream.field(mode.op_field).type) not in (pa.string(), pa.bool_()):
        raise ConfigError(
            f"op_field {mode.op_field!r} is of type {data_type}, which can't tell that a row is removed",
            hint='make it a string ("d" or "delete" removes) or a boolean (True removes)',
        )


def own_fields(mode: KeyedMode, stream: pa.Schema) -> pa.Schema:
    """Return the columns that a commit mode adds to those of the stream.

    Raises:
        ExpressionError: If an expression of the sequence does not fit the stream.
    """
    types = {name: compile_expression(node, stream).type for name, node in mode.computed.items()}
    sequence = [(name, types.get(name) or stream.field(name).type) for name in mode.sequence_fields]
    if isinstance(mode, History):
        return pa.schema([*types.items(), *_version_fields(mode, sequence)])
    if mode.sequence is None or not mode.is_partial:
        return pa.schema(types)
    entry = pa.struct([(OLDER_COLUMN, pa.int32()), (OLDER_SEQUENCE, pa.struct(sequence))])
    return pa.schema([*types.items(), (OLDER, pa.list_(entry))])


def own_renames(mode: KeyedMode, table: TableMetadata, renames: Mapping[str, str]) -> dict[str, str]:
    """Return the renames, by dotted name, that columns of ours need: they follow those of the sequence.

    Args:
        renames: The configured ones, done or not.
    """
    schema, needed = table.schema(), dict[str, str]()
    for name, struct in product(mode.sequence_fields, _sequence_structs(mode)):
        for parent in (struct, *_names_before(struct, table, renames)):
            if find(schema, f"{parent}.{name}") is None:
                paths = [f"{parent}.{old}" for old in _names_before(name, table, renames)]
                needed |= {path: name for path in paths if find(schema, path)}
    return needed


def _names_before(name: str, table: TableMetadata, renames: Mapping[str, str]) -> set[str]:
    """Return the other names that a column has had, or has until it gets this one."""
    names = {old for old, new in renames.items() if new == name and "." not in old}
    if column := find(table.schema(), name):
        fields = (field for schema in table.schemas for field in schema.fields)
        names |= {field.name for field in fields if field.field_id == column.field_id}
    return names - {name}


def _sequence_structs(mode: KeyedMode) -> tuple[str, ...]:
    """Return the structs of the table that have a field for each column of the sequence."""
    if isinstance(mode, History):
        return (mode.valid_from, mode.valid_to) if len(mode.sequence_fields) > 1 else ()
    return (f"{OLDER}.element.{OLDER_SEQUENCE}",) if mode.sequence is not None and mode.is_partial else ()


def _version_fields(mode: History, sequence: Sequence[tuple[str, pa.DataType]]) -> list[pa.Field]:
    at = sequence[0][1] if len(sequence) == 1 else pa.struct(sequence)
    return [
        pa.field(mode.valid_from, at),
        pa.field(mode.valid_to, at),
        pa.field(mode.is_current, pa.bool_()),
    ]


def with_computed(mode: KeyedMode, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the stream's rows with the columns of the sequence that are computed."""
    for name, node in mode.computed.items():
        batch = batch.append_column(name, compile_expression(node, batch.schema).column(batch))
    return batch


def check_nulls(mode: KeyedMode, column: str, nulls: int) -> None:
    """Raise SchemaMismatchError if a column with nulls is a key, or tells the sequence."""
    for columns, kind, fault in (
        (mode.keys, "key", "such rows can't be told apart"),
        (mode.sequence_fields, "sequence", "whether such a row is the later one can't be told"),
    ):
        if nulls and column in columns:
            raise SchemaMismatchError(
                f"{kind} column {column!r} has {nulls} nulls: {fault}",
                hint="filter those rows out before the sink, or give the sink a dead letter",
            )


def _is_whole(stream: pa.Schema, column: str | None) -> bool:
    return column is not None and pa.types.is_integer(stream.field(column).type)


def _is_ordered(data_type: pa.DataType) -> bool:
    if pa.types.is_struct(data_type):
        return all(_is_ordered(field.type) for field in data_type)
    return not pa.types.is_nested(data_type)


def deletions(batch: pa.RecordBatch, op_field: str | None) -> pa.BooleanArray:
    """Return for each row whether it is a deletion."""
    if op_field is None:
        return pa.repeat(pa.scalar(False), batch.num_rows)
    operations = batch.column(op_field)
    if not pa.types.is_boolean(operations.type):
        operations = _has_operation(operations, _DELETES)
    return operations.fill_null(False)


def without_earlier(batch: pa.RecordBatch, mode: KeyedMode) -> pa.RecordBatch:
    """Return rows without those that tell what a row was before its update, where a sequence orders them.

    Such a row may have the sequence of the update, as the time of a commit, and would then win by greater values.
    """
    if mode.sequence is None or mode.op_field is None:
        return batch
    earlier = _has_operation(batch.column(mode.op_field), _EARLIER)
    return batch.filter(pc.invert(earlier)) if earlier.true_count else batch


def truncates(operations: pa.Array) -> pa.BooleanArray:
    """Return for each operation of a row whether it is a truncation."""
    return _has_operation(operations, _TRUNCATES)


def _has_operation(operations: pa.Array, names: pa.Array) -> pa.BooleanArray:
    """Return for each operation whether it has one of these names, in any case."""
    if pa.types.is_boolean(operations.type):
        return pa.repeat(pa.scalar(False), len(operations))
    return pc.is_in(pc.utf8_lower(operations.cast(pa.string())), names)
