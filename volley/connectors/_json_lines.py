"""JSON lines → Arrow batches, one chunk of whole lines after the other; the line at fault is found and shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from volley._halving import first_failing, halved
from volley.connectors._input_file import LARGEST_VALUE, InputFile
from volley.errors import ConfigError, SourceError
from volley.source import BadRow, Located

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check", "infer", "read", "read_tolerant"]

_CHUNK = 8 << 20
_SAMPLE = 1 << 20
_DEEPEST = 100
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKETS = re.compile(rb"[\[\]{}]")


def check(schema: pa.Schema) -> None:
    """Raise ConfigError if a column is of a type that JSON lines are not read into."""
    for field in schema:
        if _is_unreadable(field.type, nested=False):
            raise ConfigError(
                f"column {field.name!r}: JSON files can't be read into {field.type}",
                hint="declare a struct instead of a map, a string instead of fixed binary or nested time",
            )


def _is_unreadable(kind: pa.DataType, nested: bool) -> bool:
    import pyarrow as pa

    t = pa.types
    if t.is_list(kind) or t.is_struct(kind):
        return any(_is_unreadable(kind.field(index).type, True) for index in range(kind.num_fields))
    return t.is_map(kind) or t.is_fixed_size_binary(kind) or (nested and t.is_time(kind))


def infer(file: InputFile, options: Mapping[str, Any]) -> pa.Schema:
    """The schema of the lines in the file's first megabyte."""
    import pyarrow as pa
    import pyarrow.json as pj

    with file.open() as stream:
        sample = stream.read(_SAMPLE)
        whole = sample[: sample.rfind(b"\n") + 1] if stream.read(1) else sample
    for number, line in enumerate(whole.splitlines(), 1):
        if _depth(line) > _DEEPEST:
            raise file.fault(f"nested more than {_DEEPEST} deep", number, line[:80].decode(errors="replace"))
    try:
        return pj.read_json(pa.BufferReader(whole)).schema
    except pa.ArrowException as error:
        raise _bad_line(file, whole, 0, None, error) from error


def _depth(line: bytes) -> int:
    """How deep a line is nested. Arrow makes types as deep as that, and crashes where they are too deep."""
    brackets = _BRACKETS.findall(_STRINGS.sub(b"", line))
    return max(accumulate(1 if each in b"[{" else -1 for each in brackets), default=0)


def read(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """The file's lines; missing fields are null, others are ignored."""
    import pyarrow as pa

    with file.open() as stream:
        for before, chunk in _chunks(file, stream):
            try:
                batches = _parsed(chunk, schema)
            except (pa.ArrowException, SourceError) as error:
                raise _bad_line(file, chunk, before, schema, error) from error
            yield from batches


def read_tolerant(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[Located | BadRow]:
    """The same rows, with the lines they stand in, and each line that is none."""
    import pyarrow as pa

    with file.open() as stream:
        for before, chunk in _chunks(file, stream):
            try:
                found: Iterable[Located | BadRow] = _located(file, chunk, before, _parsed(chunk, schema))
            except (pa.ArrowException, SourceError):
                found = _salvaged(file, chunk, before, schema)
            yield from found


def _salvaged(file: InputFile, chunk: bytes, before: int, schema: pa.Schema) -> Iterator[Located | BadRow]:
    import pyarrow as pa

    lines = chunk.split(b"\n")

    def attempt(start: int, end: int) -> list[Located | BadRow]:
        text = b"\n".join(lines[start:end])
        return _located(file, text, before + start, _parsed(text, schema)) if text.strip() else []

    def single(index: int, error: Exception) -> list[Located | BadRow]:
        reason = _fault([lines[index]], schema) or str(error)
        payload = lines[index].decode(errors="replace").rstrip("\r")
        return [BadRow(payload, reason, f"{file.name}, line {before + index + 1}")]

    for found in halved(len(lines), attempt, single, (pa.ArrowException, SourceError)):
        yield from found


def _located(file: InputFile, text: bytes, before: int, batches: list[pa.RecordBatch]) -> list[Located | BadRow]:
    lines = _Lines(file.name, text, before, sum(batch.num_rows for batch in batches))
    starts = accumulate((batch.num_rows for batch in batches), initial=0)
    return [Located(batch, partial(lines.position, start)) for batch, start in zip(batches, starts, strict=False)]


class _Lines:
    """Which line of a text each of its rows stands in; looked up only if somebody asks."""

    def __init__(self, name: str, text: bytes, before: int, rows: int) -> None:
        self._name, self._text, self._before, self._rows = name, text, before, rows

    @cached_property
    def _numbers(self) -> list[int]:
        lines = enumerate(self._text.split(b"\n"), self._before + 1)
        return [number for number, line in lines if line.strip()]

    def position(self, start: int, row: int) -> str:
        numbers = self._numbers
        if len(numbers) == self._rows:
            return f"{self._name}, line {numbers[start + row]}"
        # Arrow takes objects that span lines, and two in one line: then no line is known.
        return f"{self._name}, lines {numbers[0]} to {numbers[-1]}, row {start + row + 1}"


def _chunks(file: InputFile, stream: Any) -> Iterator[tuple[int, bytes]]:
    """Whole lines, with the number of lines before them."""
    before, rest = 0, b""
    while more := stream.read(_CHUNK):
        cut = more.rfind(b"\n") + 1
        if not cut:
            rest += more
            if len(rest) > LARGEST_VALUE:
                excerpt = rest[:80].decode(errors="replace")
                raise file.fault("longer than 64 MB; JSON files hold one object a line", before + 1, excerpt)
            continue
        chunk, rest = rest + more[:cut], more[cut:]
        yield before, chunk
        before += chunk.count(b"\n")
    if rest:
        yield before, rest


def _parsed(chunk: bytes, schema: pa.Schema) -> list[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.json as pj

    _check_text(chunk)
    asked = pa.schema([pa.field(field.name, _asked(field.type)) for field in schema])
    table = pj.read_json(
        pa.BufferReader(chunk),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(chunk)),
        parse_options=pj.ParseOptions(explicit_schema=asked, unexpected_field_behavior="ignore"),
    )
    return [_decoded(batch, schema) for batch in table.to_batches()]


def _check_text(chunk: bytes) -> None:
    """Arrow takes any bytes for a string, and whoever reads the table stumbles over them."""
    if chunk.isascii():
        return
    try:
        chunk.decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"not UTF-8 ({error.reason})") from error


def _asked(kind: pa.DataType) -> pa.DataType:
    """What Arrow's JSON reader is asked for: it knows ISO timestamps, but dates and times only as strings."""
    import pyarrow as pa

    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_asked(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _asked(field.type)) for field in kind])
    return kind


def _decoded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    from volley._types import conform

    columns = [
        _time_of_day(column) if pa.types.is_time(field.type) else column
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return conform(pa.RecordBatch.from_arrays(columns, names=schema.names), schema)


def _time_of_day(text: pa.Array) -> pa.Array:
    """Arrow casts strings to timestamps, not to times."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.binary_join_element_wise("1970-01-01T", text, "").cast(pa.timestamp("us")).cast(pa.time64("us"))


def _bad_line(file: InputFile, chunk: bytes, before: int, schema: pa.Schema | None, error: Exception) -> SourceError:
    lines = chunk.split(b"\n")

    def asked(start: int, end: int) -> list[bytes]:
        # Where a schema is inferred, a line can be at fault only because of those before it.
        return lines[0 if schema is None else start : end]

    at = first_failing(len(lines), lambda start, end: _fault(asked(start, end), schema) is not None)
    reason = _fault(asked(at, at + 1), schema)
    if reason is None:
        return file.fault(str(error))
    return file.fault(reason, before + at + 1, lines[at].decode(errors="replace"))


def _fault(lines: list[bytes], schema: pa.Schema | None) -> str | None:
    """What is wrong with these lines, told of the last; None if nothing is."""
    import pyarrow as pa
    import pyarrow.json as pj

    text = b"\n".join(lines)
    if not text.strip():
        return None
    try:
        if schema is None:
            pj.read_json(pa.BufferReader(text))
        else:
            _parsed(text, schema)
    except (pa.ArrowException, SourceError) as error:
        # Arrow counts rows within what it was given, which says nothing to the reader of a file.
        reason = error.message if isinstance(error, SourceError) else str(error).partition("\n")[0]
        return _not_an_object(lines[-1]) or re.sub(r" in row \d+$", "", reason)
    return None


def _not_an_object(line: bytes) -> str | None:
    try:
        return None if isinstance(json.loads(line), dict) else "not a JSON object"
    except RecursionError:
        return "nested too deep"
    except ValueError as error:
        return f"not JSON ({error})"
