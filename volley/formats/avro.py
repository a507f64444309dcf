"""Decodes Avro messages into Arrow batches, and maps Avro types to Arrow types."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from volley.arrow.uuids import array_of
from volley.errors import ConfigError, MissingDependencyError, SourceError
from volley.formats.avro_defaults import logical
from volley.formats.avro_resolution import resolved, set_defaults
from volley.formats.messages import Values
from volley.formats.schema_registry import Registry
from volley.types.arrow import canonical_schema

__all__ = ["AvroValues", "avro_columns", "file_reader"]

_PLAIN = {
    "null": "null",
    "boolean": "bool_",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
}
_MAGIC = b"\0"
_HEADER = 5
_DIGITS = 38
_PACKAGES = {"snappy": "cramjam", "zstandard": "backports.zstd", "lz4": "lz4"}


@dataclass(frozen=True)
class AvroValues:
    """Decodes values that are Avro records; a tombstone becomes a row of nulls.

    Args:
        text: The schema to read into (Avro's reader schema), as JSON.
        registry: The registry of the writer schemas; each message starts with its schema's id (Confluent's wire
            format). None = all messages were written with `text`, and have no id in front.
    """

    text: str
    registry: Registry | None

    @cached_property
    def schema(self) -> pa.Schema:
        return avro_columns(self.text)

    def decode(self, values: Values, place: str = "") -> pa.RecordBatch:
        schema = self.schema
        rows = [{} if value is None else self._row(value) for value in values]
        try:
            columns = [array_of([row.get(field.name) for row in rows], field.type) for field in schema]
        except (TypeError, ValueError, OverflowError) as error:
            raise SourceError(f"a value does not fit its column: {error}") from error
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def fault(self, value: bytes | None, error: Exception) -> str:
        return error.message if isinstance(error, SourceError) else str(error)

    def _row(self, value: bytes) -> dict[str, Any]:
        text, start = (self.text, 0) if self.registry is None else (self._writer(self.registry, value), _HEADER)
        writer, reader = _resolved(text, self.text)
        stream = io.BytesIO(value)
        stream.seek(start)
        try:
            row: dict[str, Any] = _fastavro().schemaless_reader(stream, writer, reader)
        except Exception as error:
            # fastavro raises any type of exception on broken bytes.
            raise SourceError(f"not Avro of this schema ({type(error).__name__}: {error})") from error
        if stream.tell() != len(value):
            raise SourceError(f"not Avro of this schema: {len(value) - stream.tell()} bytes are left over")
        return row

    def _writer(self, registry: Registry, value: bytes) -> str:
        if len(value) < _HEADER or value[:1] != _MAGIC:
            raise SourceError("not in Confluent's format: it does not begin with 0 and a schema's id")
        return registry.schema(int.from_bytes(value[1:_HEADER], "big"))

    def __getstate__(self) -> dict[str, Any]:
        return {"text": self.text, "registry": self.registry}


def avro_columns(text: str) -> pa.Schema:
    """Return the columns of an Avro record.

    Args:
        text: The record's schema, as JSON.

    Raises:
        ConfigError: If it is not the schema of a record, or has a type that has no column type.
    """
    try:
        schema = _parsed(text)
    except (ValueError, TypeError, _fastavro().schema.SchemaParseException, _fastavro().schema.UnknownType) as error:
        raise ConfigError(f"not an Avro schema: {error}", hint="give the text of an .avsc file") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConfigError("the Avro schema is not a record", hint="wrap it into one")
    return canonical_schema(pa.schema(_Types().record(schema)))


def file_reader(stream: Any, name: str) -> tuple[str, Iterator[dict[str, Any]]]:
    """Return the schema of an Avro file, as JSON, and its records.

    Args:
        stream: The open file.
        name: Its name, for errors.

    Raises:
        MissingDependencyError: If the file's codec needs a package that is not installed.
    """
    blocks = _fastavro().block_reader(stream)
    if (package := _PACKAGES.get(blocks.codec)) and find_spec(package.partition(".")[0]) is None:
        raise MissingDependencyError(
            f"{name} has the codec {blocks.codec}, which needs {package}", hint=f"pip install {package}"
        )
    text = blocks.metadata["avro.schema"]
    return text, _records(blocks, text)


def _records(blocks: Any, text: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a file's blocks."""
    # Without what Volley does not read, such as the logical type uuid.
    schema, _ = _resolved(text, text)
    read = _fastavro().schemaless_reader
    for block in blocks:
        for _ in range(block.num_records):
            yield read(block.bytes_, schema, None)
        if block.bytes_.read(1):
            raise ValueError(f"a block of {block.num_records} records has bytes left over")


class _Types:
    """Maps Avro types to Arrow types; remembers named types by full name, since a later field may refer to one."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType] = {}

    def record(self, schema: Mapping[str, Any]) -> list[pa.Field]:
        return [pa.field(field["name"], self._type(field["type"], field["name"])) for field in schema["fields"]]

    def _type(self, schema: Any, place: str) -> pa.DataType:
        if isinstance(schema, list):
            return self._union(schema, place)
        if isinstance(schema, str):
            schema = {"type": schema}
        type_name = schema["type"]
        if isinstance(type_name, dict | list):
            return self._type(type_name, place)
        data_type = _logical(schema, place) or self._plain(type_name, schema, place)
        if "name" in schema:
            self._named[schema["name"]] = data_type
        return data_type

    def _plain(self, type_name: str, schema: Mapping[str, Any], place: str) -> pa.DataType:
        match type_name:
            case "record":
                return pa.struct(self.record(schema))
            case "array":
                return pa.list_(self._type(schema["items"], place))
            case "map":
                return pa.map_(pa.string(), self._type(schema["values"], place))
            case "fixed":
                return pa.binary(schema["size"])
        if type_name in _PLAIN:
            return getattr(pa, _PLAIN[type_name])()
        data_type = self._named.get(type_name)
        if data_type is None:
            raise ConfigError(
                f"field {place!r}: type {type_name!r} contains itself", hint="columns can't; leave it out"
            )
        return data_type

    def _union(self, members: list[Any], place: str) -> pa.DataType:
        branches = [branch for branch in members if branch != "null"]
        if len(branches) != 1:
            raise ConfigError(
                f"field {place!r} is one of several types, which a column can't be: {json.dumps(members)[:200]}",
                hint="leave it out of the schema to read into",
            )
        return self._type(branches[0], place)


def _logical(schema: Mapping[str, Any], place: str) -> pa.DataType | None:
    """Return the Arrow type of a logical type; None if there is none, or an unknown one: then use the plain type."""
    match logical(schema):
        case "date":
            return pa.date32()
        case "time-millis" | "time-micros":
            return pa.time64("us")
        case "timestamp-millis" | "timestamp-micros":
            return pa.timestamp("us", "UTC")
        case "local-timestamp-millis" | "local-timestamp-micros":
            return pa.timestamp("us")
        case "decimal" if schema["precision"] > _DIGITS:
            raise ConfigError(
                f"field {place!r} is a decimal of {schema['precision']} digits; a column has at most {_DIGITS}",
                hint="leave the logical type out of the schema to read into: the column has its bytes then",
            )
        case "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
    return None


@lru_cache(maxsize=1_000)
def _resolved(writer: str, reader: str) -> tuple[Any, Any]:
    """Return the schema to read values by, and the one to read them into; None if that is the same."""
    try:
        written = _parsed(writer)
    except Exception as error:
        # fastavro raises any type of exception on a broken schema.
        raise SourceError(f"the schema of the values is not Avro ({type(error).__name__}: {error})") from error
    made, wanted = resolved(written, _parsed(reader))
    parse = _fastavro().parse_schema
    if made == wanted:
        return parse(made), None
    target = parse(wanted)
    set_defaults(target)
    return parse(made), target


@lru_cache(maxsize=1_000)
def _parsed(text: str) -> Any:
    return _fastavro().parse_schema(json.loads(text))


@lru_cache(maxsize=1)
def _fastavro() -> Any:
    try:
        import fastavro
        import fastavro.schema
    except ImportError as error:
        raise MissingDependencyError("Avro needs fastavro", hint='pip install "volley-stream[kafka]"') from error
    return fastavro
