"""Compares the fields of files and messages with the columns to read: unknown ones, and none that matches."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from volley.contracts.rows import note_unknown
from volley.errors import SourceError

__all__ = ["Columns", "case_of", "no_match"]

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
        seen: The names of other fields that were seen in texts so far: later ones are expected to have them, too.
    """

    schema: pa.Schema
    on_unknown: str = "drop"
    kept_in: str | None = None
    seen: set[str] = dataclasses.field(default_factory=set, repr=False, compare=False)

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


def _unknown_columns(own: Iterable[pa.Field], known: Iterable[pa.Field], before: str = "") -> Iterator[str]:
    columns = {field.name: field.type for field in known}
    for field in own:
        column = columns.get(field.name)
        if column is None:
            yield before + field.name
        else:
            yield from _unknown_within(field.type, column, f"{before}{field.name}.")


def _unknown_within(own: pa.DataType, known: pa.DataType, before: str) -> Iterator[str]:
    """Yield the unknown fields of structs, also of those in lists and maps; these add nothing to the path."""
    if pa.types.is_struct(own) and pa.types.is_struct(known):
        yield from _unknown_columns(list(own), list(known), before)
    else:
        for inner, column in zip(_items(own), _items(known), strict=False):
            yield from _unknown_within(inner, column, before)


def _items(data_type: pa.DataType) -> list[pa.DataType]:
    """Return the types of what a list or map holds; none for other types."""
    if pa.types.is_map(data_type):
        return [data_type.key_type, data_type.item_type]
    is_list = data_type.num_fields == 1 and not pa.types.is_struct(data_type)
    return [data_type.value_type] if is_list else []
