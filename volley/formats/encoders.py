"""How Arrow batches become Parquet, JSON lines or CSV, and which columns these can hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from volley.errors import SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ENCODERS", "Encoder", "check_columns", "check_rows", "holds", "json_texts"]

_ROW_GROUP_BYTES = 64 << 20
# The days that Arrow has a text for, since 1970.
_FIRST_DAY, _LAST_DAY = -12687428, 11248737


class Encoder(Protocol):
    """Writes batches to an open file; the file is closed by who opened it."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Take one batch."""

    def close(self) -> None:
        """Write what is left."""


class _Parquet:
    """Collects batches to row groups of 64 MB in memory: a row group a batch would make large files slow to read."""

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
    """Each row as a JSON object. Times and decimals are text: ISO, and every digit."""
    from volley.arrow.python_values import readable_rows

    rows = readable_rows(batch, maps_as_pydicts="strict")
    return (json.dumps(row, default=str, ensure_ascii=False) for row in rows)


class _JsonLines:
    def __init__(self, file: Any, schema: pa.Schema) -> None:
        self._file = file

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._file.write("".join(f"{text}\n" for text in json_texts(batch)).encode())

    def close(self) -> None:
        """Nothing is held."""


class _Csv:
    """Arrow's own writer, which has no text for UUIDs."""

    def __init__(self, file: Any, schema: pa.Schema) -> None:
        import pyarrow as pa
        import pyarrow.csv as pcsv

        self._uuids = [index for index, kind in enumerate(schema.types) if kind == pa.uuid()]
        for index in self._uuids:
            schema = schema.set(index, schema.field(index).with_type(pa.string()))
        self._writer = pcsv.CSVWriter(file, schema)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        from volley.arrow.uuids import texts

        for index in self._uuids:
            batch = batch.set_column(index, batch.schema.names[index], texts(batch.column(index)))
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


ENCODERS: dict[str, Callable[[Any, pa.Schema], Encoder]] = {"csv": _Csv, "json": _JsonLines, "parquet": _Parquet}


def check_columns(format: str, schema: pa.Schema) -> None:
    """Refuse a stream with columns that the format can't hold, before anything is written.

    Raises:
        SchemaMismatchError: If there are any; names them all.
    """
    bad = [f"{field.name!r} ({field.type})" for field in schema if not holds(format, field.type)]
    if bad:
        raise SchemaMismatchError(
            f"{format} files can't hold column{'s' if len(bad) > 1 else ''} {', '.join(bad)}",
            hint="cast or drop them before the sink, or write Parquet",
        )


def check_rows(format: str, batch: pa.RecordBatch) -> None:
    """Refuse rows that the format can't hold.

    Raises:
        SchemaMismatchError: If the only column of a CSV file has nulls, or a time is beyond those that Arrow writes.
    """
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
    """Whether Arrow would write ``<value out of range>`` in the place of a value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        return False
    found = pc.min_max(column.cast(pa.date32()).cast(pa.int32())).as_py()
    return found["min"] is not None and (found["min"] < _FIRST_DAY or found["max"] > _LAST_DAY)


def holds(format: str, kind: pa.DataType) -> bool:
    """Whether a format can hold a type.

    Bytes have no form in text, CSV has no nested values, and a JSON object's keys are strings.
    """
    import pyarrow as pa

    t = pa.types
    if format == "parquet":
        return True
    if t.is_map(kind):
        return format == "json" and t.is_string(kind.key_type) and holds(format, kind.item_type)
    if t.is_nested(kind):
        inner = [kind.field(index).type for index in range(kind.num_fields)]
        return format == "json" and all(holds(format, each) for each in inner)
    return not (t.is_binary(kind) or t.is_fixed_size_binary(kind))
