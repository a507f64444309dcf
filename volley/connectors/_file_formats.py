"""How JSON lines, CSV and Parquet files become Arrow batches, in bounded memory, and what is said when they don't."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from volley._types import canonical_schema, conform
from volley.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FORMATS", "Format"]

_JSON_CHUNK = 8 << 20
_BATCH_ROWS = 65_536
_SAMPLE = 1 << 20
_EXCERPT = 120


@dataclass(frozen=True)
class Format:
    """One file format.

    Args:
        extensions: The file names it is recognised by.
        infer: From an open file, its name and the format's options to a schema.
        read: From an open file, its name, the schema, the part of it to read and the options to batches.
        options: The options it knows.
    """

    extensions: tuple[str, ...]
    infer: Callable[[BinaryIO, str, Mapping[str, Any]], pa.Schema]
    read: Callable[[BinaryIO, str, pa.Schema, tuple[int, int], Mapping[str, Any]], Iterator[pa.RecordBatch]]
    options: tuple[str, ...] = ()


def _infer_parquet(file: BinaryIO, name: str, options: Mapping[str, Any]) -> pa.Schema:
    import pyarrow.parquet as pq

    return pq.ParquetFile(file).schema_arrow


def _read_parquet(
    file: BinaryIO, name: str, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """The row groups of part `i` of `n`, one batch after the other; only the columns that are wanted."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        source = pq.ParquetFile(file)
        number, parts = part
        count = source.num_row_groups
        groups = range(number * count // parts, (number + 1) * count // parts)
        columns = [field.name for field in schema if field.name in source.schema_arrow.names]
        for batch in source.iter_batches(_BATCH_ROWS, list(groups), columns, use_threads=False) if groups else ():
            yield conform(batch.replace_schema_metadata(), schema)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(
            f"{name} is not a whole Parquet file: {error}", hint="write it again; it may be cut short"
        ) from error


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The file in chunks of whole lines."""
    rest = b""
    while chunk := file.read(_JSON_CHUNK):
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield rest + chunk[:cut]
            rest = chunk[cut:]
        else:
            rest += chunk
    if rest.strip():
        yield rest


def _infer_json(file: BinaryIO, name: str, options: Mapping[str, Any]) -> pa.Schema:
    import pyarrow as pa
    import pyarrow.json as pj

    sample = file.read(_SAMPLE)
    whole = sample[: sample.rfind(b"\n") + 1] if len(sample) == _SAMPLE else sample
    try:
        return pj.read_json(io.BytesIO(whole), parse_options=pj.ParseOptions()).schema
    except pa.ArrowInvalid as error:
        raise _bad_line(name, whole, 0, None, error) from error


def _read_json(
    file: BinaryIO, name: str, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.json as pj

    parse = pj.ParseOptions(explicit_schema=_json_schema(schema), unexpected_field_behavior="ignore")
    read = pj.ReadOptions(use_threads=False, block_size=_JSON_CHUNK * 2)
    line = 0
    for chunk in _lines(file):
        try:
            table = pj.read_json(io.BytesIO(chunk), read_options=read, parse_options=parse)
            batches = [conform(_decoded(batch, schema), schema) for batch in table.to_batches()]
        except (pa.ArrowException, SourceError, ValueError) as error:
            raise _bad_line(name, chunk, line, schema, error) from error
        yield from batches
        line += chunk.count(b"\n")


def _json_schema(schema: pa.Schema) -> pa.Schema:
    """What Arrow's JSON reader is asked for: types it can't parse itself come as strings."""
    import pyarrow as pa

    def asked(kind: pa.DataType) -> pa.DataType:
        # The reader takes only one form of ISO time; casting from strings takes zones and fractions too.
        plain = pa.types.is_timestamp(kind) or pa.types.is_binary(kind) or pa.types.is_time(kind)
        return pa.string() if plain or pa.types.is_date(kind) else kind

    return pa.schema([pa.field(field.name, asked(field.type)) for field in schema])


def _decoded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    from volley._casts import can_cast, cast

    columns = []
    for index, field in enumerate(schema):
        column = batch.column(index)
        if column.type != field.type and can_cast(column.type, field.type):
            column = cast(column, field.type)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _bad_line(name: str, chunk: bytes, before: int, schema: pa.Schema | None, error: Exception) -> SourceError:
    """The first line that is at fault: found by parsing the chunk's lines again, one by one."""
    for number, line in enumerate(chunk.splitlines(), before + 1):
        if (reason := _fault(line, schema)) is not None:
            excerpt = line[:_EXCERPT].decode(errors="replace")
            return SourceError(
                f"{name}, line {number}: {reason}: {excerpt}", hint="mend the line, or declare a schema that fits it"
            )
    return SourceError(f"{name}: {error}", hint="mend the file, or declare a schema that fits it")


def _fault(line: bytes, schema: pa.Schema | None) -> str | None:
    import pyarrow as pa
    import pyarrow.json as pj

    if not line.strip():
        return None
    try:
        if not isinstance(json.loads(line), dict):
            return "not a JSON object"
    except ValueError as error:
        return f"not JSON ({error})"
    if schema is None:
        return None
    parse = pj.ParseOptions(explicit_schema=_json_schema(schema), unexpected_field_behavior="ignore")
    try:
        table = pj.read_json(io.BytesIO(line), parse_options=parse)
        for batch in table.to_batches():
            conform(_decoded(batch, schema), schema)
    except (pa.ArrowException, SourceError, TypeError, ValueError) as error:
        return str(error).partition("\n")[0]
    return None


def _infer_csv(file: BinaryIO, name: str, options: Mapping[str, Any]) -> pa.Schema:
    with _open_csv(file, name, None, options) as reader:
        return reader.schema


def _read_csv(
    file: BinaryIO, name: str, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    try:
        with _open_csv(file, name, schema, options) as reader:
            for batch in reader:
                yield conform(batch, schema)
    except pa.ArrowInvalid as error:
        raise SourceError(f"{name}: {error}", hint="mend the row, or declare a schema that fits it") from error


def _open_csv(file: BinaryIO, name: str, schema: pa.Schema | None, options: Mapping[str, Any]) -> Any:
    import pyarrow as pa
    import pyarrow.csv as pcsv

    types = {} if schema is None else {field.name: field.type for field in schema}
    names = None if options.get("header", True) else (list(types) or None)
    try:
        return pcsv.open_csv(
            file,
            read_options=pcsv.ReadOptions(
                use_threads=False,
                column_names=names,
                autogenerate_column_names=not options.get("header", True) and not names,
            ),
            parse_options=pcsv.ParseOptions(delimiter=options.get("delimiter", ","), newlines_in_values=True),
            convert_options=pcsv.ConvertOptions(
                column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise SourceError(f"{name}: {error}", hint="mend the row, or declare a schema that fits it") from error


FORMATS = {
    "json": Format((".json", ".jsonl", ".ndjson"), _infer_json, _read_json),
    "csv": Format((".csv",), _infer_csv, _read_csv, ("header", "delimiter")),
    "parquet": Format((".parquet",), _infer_parquet, _read_parquet),
}


def canonical(schema: pa.Schema, name: str) -> pa.Schema:
    """An inferred schema in the types all engines share."""
    try:
        return canonical_schema(schema)
    except SourceError as error:
        raise SourceError(f"{name}: {error.message}", hint=error.hint) from error
