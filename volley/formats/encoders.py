"""Writes Arrow batches as Parquet, JSON lines or CSV, and checks that the format can hold their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from volley.errors import SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ENCODERS", "check_columns", "check_rows", "holds", "json_texts"]

_ROW_GROUP_BYTES = 64 << 20
# The first and last day that Arrow's CSV writer can format, in days since 1970.
_FIRST_DAY, _LAST_DAY = -12687428, 11248737


class Encoder(Protocol):
    """Writes batches to an open file; the caller closes the file."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write one batch; it may be buffered until `close`."""

    def close(self) -> None:
        """Write the buffered batches and the file's end."""


class _Parquet:
    """Buffers batches up to row groups of 64 MB: one row group per batch would make large files slow to read."""

    def __init__(self, file: Any, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(file, schema)
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._held:
            table = pa.Table.from_batches(self._held)
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._held, self._bytes = [], 0


def json_texts(batch: pa.RecordBatch) -> Iterator[str]:
    """Yield each row as a JSON object. Times are ISO text, decimals text with every digit, NaN is the text "NaN"."""
    from volley.columns.readable import json_of, readable_rows

    return map(json_of, readable_rows(batch, maps_as_pydicts="strict"))


class _JsonLines:
    def __init__(self, file: Any, schema: pa.Schema) -> None:
        self._file = file

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._file.write("".join(f"{text}\n" for text in json_texts(batch)).encode())

    def close(self) -> None:
        """Do nothing: no batch is buffered."""


class _Csv:
    """Wraps Arrow's CSV writer, which can't format UUIDs: they are converted to text first."""

    def __init__(self, file: Any, schema: pa.Schema) -> None:
        import pyarrow as pa
        import pyarrow.csv as pcsv

        self._uuids = [index for index, data_type in enumerate(schema.types) if data_type == pa.uuid()]
        for index in self._uuids:
            schema = schema.set(index, schema.field(index).with_type(pa.string()))
        self._writer = pcsv.CSVWriter(file, schema)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        from volley.columns.texts import uuid_text

        for index in self._uuids:
            batch = batch.set_column(index, batch.schema.names[index], uuid_text(batch.column(index)))
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


ENCODERS: dict[str, Callable[[Any, pa.Schema], Encoder]] = {"csv": _Csv, "json": _JsonLines, "parquet": _Parquet}


def check_columns(format: str, schema: pa.Schema) -> None:
    """Check that the format can hold every column, before anything is written.

    Raises:
        SchemaMismatchError: If it can't; names all such columns.
    """
    bad = [f"{field.name!r} ({field.type})" for field in schema if not holds(format, field.type)]
    if bad:
        raise SchemaMismatchError(
            f"{format} files can't hold column{'s' if len(bad) > 1 else ''} {', '.join(bad)}",
            hint="cast or drop them before the sink, or write Parquet",
        )


def check_rows(format: str, batch: pa.RecordBatch) -> None:
    """Check that the format can hold every row.

    Raises:
        SchemaMismatchError: If the only column of a CSV file has nulls, a time is outside Arrow's range for CSV, or a
            map, which becomes a JSON object, has a key twice.
    """
    if format == "json":
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if _repeats_a_key(column):
                raise SchemaMismatchError(
                    f"column {name!r} has a map with a key twice, which JSON objects can't hold",
                    hint="filter such rows out before the sink, give it a dead letter, or write Parquet",
                )
    if format != "csv":
        return
    if batch.num_columns == 1 and (nulls := batch.column(0).null_count):
        raise SchemaMismatchError(
            f"column {batch.schema.names[0]!r} has {nulls} nulls: alone in a row of CSV, one is an empty line",
            hint="readers pass over it: filter such rows out, add another column, or write JSON or Parquet",
        )
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if _is_beyond_csv(column):
            raise SchemaMismatchError(
                f"column {name!r} has a time beyond the years -32767 to 32767, which CSV files can't hold",
                hint="filter such rows out before the sink, or write JSON or Parquet",
            )


def _is_beyond_csv(column: pa.Array) -> bool:
    """Return True if Arrow would write ``<value out of range>`` instead of a value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        return False
    days = pc.min_max(column.cast(pa.date32()).cast(pa.int32())).as_py()
    return days["min"] is not None and (days["min"] < _FIRST_DAY or days["max"] > _LAST_DAY)


def _repeats_a_key(column: pa.Array) -> bool:
    """Return True if a map in the column has a key twice, also within other values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_struct(column.type):
        return any(map(_repeats_a_key, column.flatten()))
    if not pa.types.is_map(column.type):
        return pa.types.is_nested(column.type) and _repeats_a_key(pc.list_flatten(column))
    maps = column.drop_null()
    keys, items = (pa.ListArray.from_arrays(maps.offsets, values) for values in (maps.keys, maps.items))
    pairs = pa.table({"map": pc.list_parent_indices(keys), "key": pc.list_flatten(keys)})
    different = pairs.group_by(["map", "key"], use_threads=False).aggregate([])
    return different.num_rows < pairs.num_rows or _repeats_a_key(pc.list_flatten(items))


def holds(format: str, data_type: pa.DataType) -> bool:
    """Return True if a format can hold a type.

    Text formats have no bytes, CSV has no nested values, and keys of JSON objects are strings.
    """
    import pyarrow as pa

    t = pa.types
    if format == "parquet":
        return True
    if t.is_map(data_type):
        return format == "json" and t.is_string(data_type.key_type) and holds(format, data_type.item_type)
    if t.is_nested(data_type):
        inner = [data_type.field(index).type for index in range(data_type.num_fields)]
        return format == "json" and all(holds(format, field_type) for field_type in inner)
    return not (t.is_binary(data_type) or t.is_fixed_size_binary(data_type))
