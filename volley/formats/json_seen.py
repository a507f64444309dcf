"""Sees the fields of JSON objects that their schema lacks: those with a type, in their order, and those without one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from math import isfinite
from typing import Any

import pyarrow as pa

from volley.contracts.rows import Seen, note_seen
from volley.formats.inferred import DEEPEST, EMPTY_OBJECT, NOTHING, Inferred, is_name, wide_schema
from volley.formats.json_objects import Fields, Number, decoded

__all__ = ["Sight", "has_value"]

_WHOLE = re.compile(r"-?([0-9]+)")
_DECIMAL = re.compile(r"-?([0-9]+)(?:\.([0-9]+))?")
_MOST_DIGITS = 38
_LONGEST_DOUBLE = 400
_MOST_SHAPES = 1_000
_MOST_SEEN = 10_000

_Path = tuple[str | None, ...]


class Sight:
    """What was seen of a source's rows by this process, beside its columns.

    Attributes:
        columns: The source's columns.
        wide: The columns, and the fields that were seen beside them.
        news: What was seen of fields that become columns once the job is planned anew; empty = nothing.
    """

    def __init__(self, columns: Inferred) -> None:
        self.columns = columns
        self._seen: dict[Seen, None] = {}
        self._shapes: dict[Seen, None] = {}
        self._declared = _bounded(columns.schema)
        self.news: tuple[Seen, ...] = ()
        self.wide = columns.schema

    def __reduce__(self) -> tuple[type[Sight], tuple[Inferred]]:
        # What is new in one process is none of another's business: its own rows tell.
        return Sight, (self.columns,)

    def look(self, texts: Iterable[bytes]) -> bool:
        """Look at objects; return True if one has a field that was not seen before."""
        before = len(self._seen), len(self._shapes)
        for text in texts:
            with suppress(ValueError, RecursionError):
                for value in decoded(text.decode().removeprefix("\ufeff")):
                    if isinstance(value, tuple):
                        self._take(value)
        if (len(self._seen), len(self._shapes)) == before:
            return False
        self._widen()
        self.note()
        return True

    def see(self, seen: Iterable[Seen]) -> None:
        """Take into account what is seen beside the objects, as the names of folders."""
        self._seen.update(dict.fromkeys(seen))
        self._widen()
        self.note()

    def note(self) -> None:
        """Note what is new, for the task that this thread runs."""
        if self.news:
            note_seen(self.columns.source, self._seen)

    def _take(self, fields: Fields) -> None:
        for path, value in _leaves(fields, ()):
            seen = Seen(path, self._kind(path, value))
            if seen.type in (NOTHING, EMPTY_OBJECT):
                if len(self._shapes) < _MOST_SHAPES:
                    self._shapes[seen] = None
            elif seen.type and len(self._seen) < _MOST_SEEN and self.columns.takes(seen):
                self._seen[seen] = None

    def _kind(self, path: _Path, value: Any) -> str:
        """Return the name of a value's type; empty = no column can have it."""
        if isinstance(value, Number):
            match self._declared.get(path):
                case None:
                    return _type_of_number(value)
                case pa.Decimal128Type():
                    return _digits_of(value)
            return _int_or(_type_of_number(value), value)
        if isinstance(value, bool) or value is None:
            return NOTHING if value is None else "boolean"
        # Nothing in an object or list can have a column: its JSON can.
        return EMPTY_OBJECT if value == () else "string"

    def _widen(self) -> None:
        """Find out what is new of what was seen, in the order in which it was."""
        after = self.columns.with_seen(self._seen)
        self.news = after.seen[len(self.columns.seen) :]
        self.wide = wide_schema(after.schema, self._shapes)


def _leaves(fields: Fields, before: _Path) -> Iterator[tuple[_Path, Any]]:
    """Yield what an object has, by its path; of a name that is there twice or that no column can have, nothing."""
    counts = Counter(name for name, _ in fields)
    for name, value in fields:
        if counts[name] == 1 and is_name(name):
            yield from _leaves_of(value, (*before, name))


def _leaves_of(value: Any, path: _Path) -> Iterator[tuple[_Path, Any]]:
    """Yield what a value has; the value itself if it has something, and nothing in it can have a column."""
    if not isinstance(value, (tuple, list)) or value == ():
        yield path, value
        return
    leaves = list(_within(value, path)) if len(path) < DEEPEST else []
    yield from leaves
    if has_value(value) and not any(has_value(leaf) for _, leaf in leaves):
        yield path, value


def _within(value: Fields | list[Any], path: _Path) -> Iterator[tuple[_Path, Any]]:
    if isinstance(value, tuple):
        yield from _leaves(value, path)
        return
    for item in value or [None]:
        yield from _leaves_of(item, (*path, None))


def _type_of_number(number: Number) -> str:
    if whole := _WHOLE.fullmatch(number):
        if len(whole[1]) < 19 or (len(whole[1]) < 21 and -(2**63) <= int(number) < 2**63):
            return "long"
        return f"decimal({_MOST_DIGITS},0)" if len(whole[1]) <= _MOST_DIGITS else "string"
    return "double" if len(number) <= _LONGEST_DOUBLE and isfinite(float(number)) else ""


def _int_or(kind: str, number: Number) -> str:
    return "int" if kind == "long" and -(2**31) <= int(number) < 2**31 else kind


def _digits_of(number: Number) -> str:
    """Return the type of a number as a decimal; of one with an exponent, none."""
    parts = _DECIMAL.fullmatch(number)
    if parts is None:
        return ""
    before, behind = len(parts[1].lstrip("0")), len((parts[2] or "").rstrip("0"))
    return f"decimal({max(1, before + behind)},{behind})" if before + behind <= _MOST_DIGITS else ""


def _bounded(schema: pa.Schema) -> dict[_Path, pa.DataType]:
    """Return the columns, and fields and items within, whose numbers may become wider, by their paths."""
    found = dict[_Path, pa.DataType]()

    def look(data_type: pa.DataType, path: _Path) -> None:
        if pa.types.is_decimal(data_type) or data_type == pa.int32():
            found[path] = data_type
        elif pa.types.is_list(data_type):
            look(data_type.value_type, (*path, None))
        elif pa.types.is_struct(data_type):
            for field in data_type:
                look(field.type, (*path, field.name))

    for field in schema:
        look(field.type, (field.name,))
    return found


def has_value(value: Any) -> bool:
    """Return True if a value is neither null nor a list or object without a value in it.

    Example:
        >>> [has_value(value) for value in (None, [], [[], None], (("a", ()),), "", False)]
        [False, False, False, False, True, True]
    """
    if isinstance(value, tuple):
        return any(has_value(inner) for _, inner in value)
    return any(map(has_value, value)) if isinstance(value, list) else value is not None
