"""Decodes Avro messages into Arrow batches."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from math import isinf
from typing import Any, ClassVar

import pyarrow as pa

from volley.columns.exact import array_of
from volley.errors import ConfigError, MissingDependencyError, SourceError, VolleyError, message_of
from volley.formats.avro_batches import AvroBatches, UnsupportedError
from volley.formats.avro_bounds import DEEPEST, LARGEST_VALUE, Bounds
from volley.formats.avro_defaults import NUMBERS
from volley.formats.avro_merge import merged
from volley.formats.avro_resolution import UNREAD, added_sizes, resolved, set_defaults, unread_reasons
from volley.formats.avro_types import AvroTypes
from volley.formats.cursors import FEW, Integers
from volley.formats.framing import head_of
from volley.formats.input_file import megabytes
from volley.formats.joined_values import Joined
from volley.formats.messages import TooManyError, Values
from volley.formats.repeated_values import placed_rows
from volley.formats.rows import Sorted, sort_good
from volley.formats.schema_registry import BY_ID, Registry
from volley.types.arrow import canonical_schema

__all__ = [
    *("ALONE", "AvroValues", "Resolution", "as_record", "avro_columns", "merged_texts", "parsed_schema"),
    *("read_records", "resolution_of"),
]

ALONE = "volley_value"
"""The name of the record that a schema which is none stands in: it has one field, ``value``, and the same bytes."""

# Values that are decoded at once: as many as the processor's cache holds; with all of a chunk a row costs a third more.
_AT_ONCE = 200
# Values below are not looked at for their size in memory: a bound is enough.
_SMALL_VALUE = 128 << 10
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKETS = re.compile(r"[\[\]{}]")
# A record inside of another is within its fields, the field, and a union and a type there.
_BRACKETS_OF_A_LEVEL = 4


@dataclass(frozen=True)
class AvroValues:
    """Decodes values that are Avro records; a tombstone becomes a row of nulls.

    Args:
        text: The schema to read into (Avro's reader schema), as JSON.
        registry: The registry of the writer schemas; each message starts with its schema's id (Confluent's wire
            format). None = all messages were written with `text`, and have no id in front.
    """

    format: ClassVar[str] = "text"
    rows_vary: ClassVar[bool] = False
    text: str
    registry: Registry | None

    @cached_property
    def schema(self) -> pa.Schema:
        return avro_columns(self.text)

    def decode(self, values: Values, place: str = "") -> pa.RecordBatch:
        joined, batches = Joined.of(values), list[pa.RecordBatch]()
        for part in joined.parts():
            batches += [*self._at_once(joined[part])] or self._one_by_one([*joined[part]])
            if len(values) > 1 and sum(batch.nbytes for batch in batches) > LARGEST_VALUE:
                raise _too_many(len(values))
        return pa.concat_batches(batches) if batches else self._batch([])

    def _at_once(self, values: Joined) -> Iterator[pa.RecordBatch]:
        """Yield the rows; nothing if some values must be read one by one."""
        if len(values) < FEW:
            return
        groups = list[tuple[Integers, list[pa.Array]]]()
        for head, rows in values.by_head(self._head).items():
            arrays = self._resolution(head).columns(values, rows, len(head), self.schema)
            if arrays is None:
                return
            groups.append((rows, arrays))
        yield placed_rows(groups, len(values), self.schema)

    def _one_by_one(self, values: Values) -> list[pa.RecordBatch]:
        with _damage():
            heads, resolutions = self._checked(values)
        batches = []
        for start in range(0, len(values), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            with _damage():
                rows = _read(values[part], heads[part], resolutions)
            batches.append(self._batch(rows))
        return batches

    def sort(self, values: Values, place: str = "") -> Sorted:
        faults: dict[int, str] = {}
        rows: list[tuple[int, dict[str, Any]]] = []
        size = 0.0
        for number, value in enumerate(values):
            try:
                size += self._size(value)
                if size > LARGEST_VALUE and number:
                    raise _too_many(len(values))
                rows.append((number, self._row(value)))
            except TooManyError:
                raise
            except SourceError as error:
                faults[number] = error.message

        def convert(start: int, end: int) -> Sorted:
            part = rows[start:end]
            return Sorted([self._batch([row for _, row in part])], [number for number, _ in part], {})

        numbers = [number for number, _ in rows]
        return sort_good(faults, numbers, convert, lambda _, error: self.fault(None, error), (SourceError,))

    def fault(self, value: bytes | None, error: Exception) -> str:
        return message_of(error)

    def _row(self, value: bytes | None) -> dict[str, Any]:
        with _damage():
            (row,) = _read([value], *self._checked([value]))
        return row

    def _size(self, value: bytes | None) -> float:
        """Return what a value takes in memory, at most."""
        if value is None:
            return 0
        bounds = self._resolution(self._head(value)).bounds
        most = bounds.fixed + bounds.growth * len(value)
        if most <= _SMALL_VALUE:
            return most
        with _damage():
            return bounds.size(value, len(self._head(value)))

    def _batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        try:
            columns = [array_of([row.get(field.name) for row in rows], field.type) for field in self.schema]
        except (TypeError, ValueError, OverflowError) as error:
            raise SourceError(f"a value does not fit its column: {error}") from error
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _checked(self, values: Values) -> tuple[list[bytes | None], dict[bytes, Resolution]]:
        """Return what names the schema of each value, and how to read those of each.

        What the values take in memory is known before the first is decoded.
        """
        heads = [None if value is None else self._head(value) for value in values]
        resolutions = {head: self._resolution(head) for head in dict.fromkeys(heads) if head is not None}
        _check_size(values, heads, resolutions)
        return heads, resolutions

    def _head(self, value: bytes) -> bytes:
        """Return what names the schema of a value; empty if nothing does."""
        return b"" if self.registry is None else head_of(value)

    def _resolution(self, head: bytes) -> Resolution:
        return resolution_of(self.text if self.registry is None else self._writer(self.registry, head), self.text)

    def _writer(self, registry: Registry, head: bytes) -> str:
        by_id = head[:1] == BY_ID
        return registry.schema(int.from_bytes(head[1:], "big")) if by_id else registry.avro(head)

    def __getstate__(self) -> dict[str, Any]:
        return {"text": self.text, "registry": self.registry}


def avro_columns(text: str) -> pa.Schema:
    """Return the columns of an Avro record, of a record or null, or of several records.

    Args:
        text: The schema, as JSON.

    Raises:
        ConfigError: If it is not the schema of a record, or has a type that has no column type.
    """
    schema = _schema_of(text)
    if not _is_record(schema):
        raise ConfigError("the Avro schema is not a record", hint="wrap it into one")
    members = [member for member in schema if member != "null"] if isinstance(schema, list) else [schema]
    types = AvroTypes()
    fields = types.record(members[0]) if len(members) == 1 else types.branches(schema, "")
    return canonical_schema(pa.schema(fields))


def as_record(text: str) -> str:
    """Return a schema that is one of records; of another one that of a record with one field, ``value``, which has it.

    Raises:
        ConfigError: If it is not an Avro schema.

    Example:
        >>> as_record('"long"')
        '{"type": "record", "name": "volley_value", "fields": [{"name": "value", "type": "long"}]}'
    """
    return text if _is_record(_schema_of(text)) else _alone(text)


def _alone(text: str) -> str:
    return json.dumps({"type": "record", "name": ALONE, "fields": [{"name": "value", "type": json.loads(text)}]})


def _is_alone(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("name") == ALONE


def _is_record(schema: Any) -> bool:
    members = [member for member in schema if member != "null"] if isinstance(schema, list) else [schema]
    return bool(members) and all(isinstance(member, dict) and member.get("type") == "record" for member in members)


def _schema_of(text: str) -> Any:
    try:
        return parsed_schema(text)
    except MissingDependencyError:
        raise
    except Exception as error:
        # fastavro raises any type of exception on a broken schema.
        raise ConfigError(f"not an Avro schema: {error}", hint="give the text of an .avsc file") from error


def merged_texts(kept: str, latest: str) -> str:
    """Return the schema that reads values of two; the first one itself if it has all that the second one has.

    Raises:
        SourceError: If the second one is not Avro.
    """
    try:
        schema = parsed_schema(latest)
    except MissingDependencyError:
        raise
    except Exception as error:
        # fastavro raises any type of exception on a broken schema.
        raise SourceError(f"the latest schema is not Avro ({type(error).__name__}: {error})") from error
    return merged(parsed_schema(kept), schema) or kept


def read_records(values: Sequence[bytes], start: int, text: str) -> list[dict[str, Any]]:
    """Return values of one schema as records.

    Args:
        start: Where a record begins in each value.
        text: Their schema, as JSON.

    Raises:
        TooManyError: If they take too much memory together.
        SourceError: If one can't be decoded.
    """
    heads, resolutions = [bytes(start)] * len(values), {bytes(start): resolution_of(text, text)}
    with _damage():
        _check_size(values, heads, resolutions)
        return _read(values, heads, resolutions)


@contextmanager
def _damage() -> Iterator[None]:
    """Translate the errors of damaged values; fastavro raises any type of exception."""
    try:
        yield
    except VolleyError:
        raise
    except Exception as error:
        raise SourceError(f"not Avro of this schema ({type(error).__name__}: {error})") from error


def _read(
    values: Values, heads: Sequence[bytes | None], resolutions: Mapping[bytes, Resolution]
) -> list[dict[str, Any]]:
    """Return values as rows; fastavro raises any type of exception on damaged ones."""
    read = _fastavro().schemaless_reader
    rows: list[dict[str, Any]] = []
    for value, head in zip(values, heads, strict=True):
        if value is None or head is None:
            rows.append({})
            continue
        resolution, stream = resolutions[head], io.BytesIO(value)
        stream.seek(len(head))
        try:
            row = read(stream, resolution.writer, resolution.reader)
        except _fastavro().read.SchemaResolutionError as error:
            raise resolution.unread(error) from error
        # A null in place of the record, as of ["null", R].
        rows.append({} if row is None else row)
        if rest := len(value) - stream.tell():
            raise SourceError(f"not Avro of this schema: {rest} bytes are left over")
    return rows


def _check_size(values: Values, heads: Sequence[bytes | None], resolutions: Mapping[bytes, Resolution]) -> None:
    """Check what values take in memory: one after the other only if it can be too much together."""
    bounds = [resolution.bounds for resolution in resolutions.values()]
    length = sum(len(value) for value in values if value is not None)
    fixed, growth = (
        max((bound.fixed for bound in bounds), default=0),
        max((bound.growth for bound in bounds), default=0),
    )
    if fixed * len(values) + growth * length <= LARGEST_VALUE:
        return
    pairs = zip(values, heads, strict=True)
    total = sum(resolutions[head].bounds.size(value, len(head)) for value, head in pairs if value and head is not None)
    if total > LARGEST_VALUE and len(values) > 1:
        raise _too_many(len(values))


def _too_many(count: int) -> TooManyError:
    return TooManyError(f"{count:,} messages take more than {megabytes(LARGEST_VALUE)} in memory")


@dataclass(frozen=True, eq=False)
class Resolution:
    """How values of a schema are read into another one.

    Args:
        reader: The schema to read them into; None = the same.
    """

    writer: Any
    reader: Any
    bounds: Bounds

    def columns(self, values: Joined, rows: Integers, start: int, schema: pa.Schema) -> list[pa.Array] | None:
        """Return the columns of values, read all at once; None if they must be read one by one.

        Args:
            rows: The numbers of the values.
            start: Where a record begins in each value.
            schema: The columns of the reader's schema.
        """
        if self.bounds.fixed * len(rows) + self.bounds.growth * int(values.lengths[rows].sum()) > LARGEST_VALUE:
            return None
        batches = _batches(self, schema)
        return None if batches is None else batches.read(values, rows, start)

    def unread(self, error: Exception) -> Exception:
        """Return the error itself, or what it says of a value of a branch that the reader lacks."""
        reasons = unread_reasons(self.writer) if UNREAD in str(error) else []
        return SourceError("; or ".join(reasons)) if reasons else error

    def rows(self, stream: io.BytesIO, count: int) -> list[dict[str, Any]]:
        """Return the next records; fastavro raises any type of exception on damaged bytes."""
        read, writer, reader = _fastavro().schemaless_reader, self.writer, self.reader
        return [read(stream, writer, reader) for _ in range(count)]


def resolution_of(writer: str, reader: str) -> Resolution:
    """Return how to read values.

    Args:
        writer: The schema that they were written with, as JSON.
        reader: The schema to read them into, likewise.

    Raises:
        SourceError: If the first is no Avro, or no value of it can be read into the second.
    """
    resolution = _resolution(writer, reader)
    if isinstance(resolution, SourceError):
        raise SourceError(resolution.message, hint=resolution.hint)
    return resolution


@lru_cache(maxsize=1_000)
def _resolution(writer: str, reader: str) -> Resolution | SourceError:
    """Return how to read values, or why they can't be: each message asks."""
    try:
        written_schema, target_schema = parsed_schema(writer), parsed_schema(reader)
        if _is_alone(target_schema) and not _is_alone(written_schema):
            written_schema = parsed_schema(_alone(writer))
        written_schema, target_schema = resolved(written_schema, target_schema)
        written, target = (_fastavro().parse_schema(schema) for schema in (written_schema, target_schema))
        bounds = Bounds(written, added_sizes(target_schema))
    except MissingDependencyError:
        raise
    except SourceError as error:
        return error
    except Exception as error:
        # fastavro raises any type of exception on a broken schema.
        return SourceError(f"the schema of the values is not Avro ({type(error).__name__}: {error})")
    if written_schema == target_schema:
        return Resolution(written, None, bounds)
    set_defaults(target)
    return Resolution(written, target, bounds)


@lru_cache(maxsize=1_000)
def _batches(resolution: Resolution, schema: pa.Schema) -> AvroBatches | None:
    """Return what reads many values at once; None if their schema has what is read one by one."""
    writer, reader = resolution.writer, resolution.reader
    try:
        return AvroBatches(writer, writer if reader is None else reader, schema)
    except UnsupportedError:
        return None


@lru_cache(maxsize=1_000)
def parsed_schema(text: str) -> Any:
    """Return a schema as fastavro parses it: named types by their full names.

    Raises:
        ValueError: If it has too many levels or fields.
        TypeError: If it is no schema; fastavro raises other types as well.
    """
    steps = (1 if bracket in "[{" else -1 for bracket in _BRACKETS.findall(_STRINGS.sub("", text)))
    if max(accumulate(steps), default=0) > DEEPEST * _BRACKETS_OF_A_LEVEL:
        raise ValueError(f"it has more than {DEEPEST} levels")
    schema = _fastavro().parse_schema(json.loads(text, parse_float=_finite))
    Bounds(schema)
    return schema


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"no double holds {text}")
    return number


@lru_cache(maxsize=1)
def _fastavro() -> Any:
    try:
        import fastavro.read
    except ImportError as error:
        raise MissingDependencyError("Avro needs fastavro", hint='pip install "volley-stream[kafka]"') from error
    for name, read in NUMBERS.items():
        fastavro.read.LOGICAL_READERS[f"long-{name}"] = read
    return fastavro
