"""Compares the fields of files and messages with the columns to read: unknown ones, and none that matches."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.errors import SourceError
from volley.unknown_fields import note_unknown

__all__ = ["Columns", "case_of", "check_match", "names_of", "no_match", "objects_of", "unknown_in"]

_SHOWN = 5
_LONGEST = 60
_UNKNOWN_HINT = 'declare it, or choose on_unknown="warn" or "drop" to leave it out'


@dataclass(frozen=True)
class Columns:
    """All columns that a file or message can have, and what to do with other fields.

    Args:
        schema: The columns, also those that are not read.
        on_unknown: ``"warn"``, ``"keep"``, ``"fail"`` or ``"drop"``.
        kept_in: The name of the column that keeps other fields as JSON.
    """

    schema: pa.Schema
    on_unknown: str = "drop"
    kept_in: str | None = None

    def check_file(self, name: str, own: pa.Schema) -> None:
        """Check the columns of a file that tells them.

        Args:
            name: The file's name.
            own: The file's columns.

        Raises:
            SourceError: If it has none of the columns, or an unknown one and `on_unknown` is ``"fail"``.
        """
        if own.names and not set(own.names) & set(self.schema.names):
            raise SourceError(
                f"{name} {no_match(own.names, self.schema.names)}", hint="declare one of the file's columns"
            )
        self.check_unknown(name, own)

    def check_unknown(self, name: str, own: pa.Schema) -> None:
        """Check for unknown columns alone.

        Raises:
            SourceError: If there is one and `on_unknown` is ``"fail"``.
        """
        unknown = [] if self.on_unknown == "drop" else [*_unknown_columns(own, self.schema)]
        if unknown and self.on_unknown == "fail":
            raise SourceError(f"{name}: column {unknown[0]!r} is not in the schema", hint=_UNKNOWN_HINT)
        note_unknown(unknown, name)


def no_match(fields: Collection[str], columns: Sequence[str]) -> str:
    """Return the fault of a file or row that has none of the columns.

    Example:
        >>> no_match(["ID"], ["id", "name"])
        "has none of the columns ['id', 'name']: it has ['ID']; names differ in upper and lower case"
    """
    return f"has none of the columns {_listed(columns)}: it has {_listed(fields)}{case_of(fields, columns)}"


def case_of(fields: Iterable[str], columns: Iterable[str]) -> str:
    """Return a clause if a field has the name of a column in other cases, else an empty text."""
    lowered = {column.lower() for column in columns}
    return "; names differ in upper and lower case" if any(name.lower() in lowered for name in fields) else ""


def _listed(names: Collection[str]) -> str:
    shown = [name[:_LONGEST] for name in islice(names, _SHOWN)]
    return f"{shown}" if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def check_match(text: bytes, table: pa.Table, columns: Collection[str]) -> None:
    """Raise SourceError if a JSON object has fields, but none of the columns; an empty one is a row of nulls.

    Args:
        text: The objects, separated by white space.
        table: The rows that were made of them: only rows of nulls are looked at.
        columns: The names of all columns that the objects can have.
    """
    if not table.num_rows or not all(column.null_count for column in table.columns):
        return
    if len(columns) > table.num_columns and _are_named(text, table.num_rows, columns):
        return
    nulls: pa.ChunkedArray = reduce(pc.and_, (pc.is_null(column) for column in table.columns))
    rows = np.flatnonzero(nulls.combine_chunks().to_numpy(zero_copy_only=False)).tolist()
    objects = objects_of(text, table.num_rows) if rows else []
    for row in (objects[row] for row in rows if row < len(objects)):
        if (fields := _parsed(row)) and not fields.keys() & columns:
            raise SourceError(no_match(fields.keys(), [*columns]))


def _are_named(text: bytes, count: int, columns: Iterable[str]) -> bool:
    """Return True if one of the columns is named as often as there are rows: those that are not read may have values.

    To count names takes a tenth of the time that it takes to parse the text.
    """
    return any(text.count(json.dumps(name).encode()) >= count for name in columns)


def objects_of(text: bytes, count: int) -> Sequence[bytes]:
    """Return the text of each object; usually one a line."""
    lines = [line for line in text.split(b"\n") if line.strip()]
    return lines if len(lines) == count else [*_decoded_objects(text)]


def _decoded_objects(text: bytes) -> Iterator[bytes]:
    """Yield the text of each object, also of those that span lines; ends where Python can't read one."""
    rest, decoder = text.decode("utf-8-sig", errors="replace").lstrip(), json.JSONDecoder()
    at = 0
    with suppress(ValueError, RecursionError):
        while at < len(rest):
            _, end = decoder.raw_decode(rest, at)
            yield rest[at:end].encode()
            at = end + len(rest[end:]) - len(rest[end:].lstrip())


def _parsed(text: bytes) -> dict[str, Any]:
    """Return an object's fields; none if Python can't read what Arrow has read."""
    with suppress(ValueError, RecursionError):
        fields = json.loads(text.decode("utf-8-sig"))
        if isinstance(fields, dict):
            return fields
    return {}


Names = dict[str, "Names | None"]
"""The names of fields, each with those of the fields within; None = it has none."""


def names_of(fields: Iterable[pa.Field]) -> Names:
    """Return the names of fields, for `unknown_in`; items of lists count as their list."""
    return {field.name: _names_within(field.type) for field in fields}


def _names_within(data_type: pa.DataType) -> Names | None:
    if pa.types.is_list(data_type):
        return _names_within(data_type.value_type)
    return names_of(list(data_type)) if pa.types.is_struct(data_type) else None


def unknown_in(text: bytes, names: Names) -> Iterator[str]:
    """Yield the names of an object's fields that are in no column, with dots if they are nested."""
    yield from _unknown(_parsed(text), names, "")


def _unknown(value: Any, names: Names, before: str) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _unknown(item, names, before)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in names:
                yield before + name
            elif within := names[name]:
                yield from _unknown(inner, within, f"{before}{name}.")


def _unknown_columns(own: Iterable[pa.Field], known: Iterable[pa.Field], before: str = "") -> Iterator[str]:
    columns = {field.name: field.type for field in known}
    for field in own:
        column = columns.get(field.name)
        if column is None:
            yield before + field.name
        elif pa.types.is_struct(field.type) and pa.types.is_struct(column):
            yield from _unknown_columns(list(field.type), list(column), f"{before}{field.name}.")
