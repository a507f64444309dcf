"""The rows that an erasure looks for: those with one of some keys, and dead letters whose texts name one."""

from __future__ import annotations

import json
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import StringType, UUIDType

from volley.columns.exact import array_of, exact_cast
from volley.columns.keys.normal import normal_rows
from volley.columns.keys.search import KeySearch, whole_numbers
from volley.errors import ConfigError, near
from volley.iceberg.read.entries import FileEntry
from volley.iceberg.read.pruning import decoded_bounds
from volley.iceberg.read.skipping import Positions
from volley.iceberg.schema.types import arrow_schema, rows_schema
from volley.iceberg.upsert.ranges import SearchedKey, may_have, ranges_of

__all__ = ["SoughtKeys", "SoughtLetters", "SoughtRows", "keys_of"]

# Iceberg's writers cut the bounds of texts and bytes to so many characters.
_CUT = 16


class SoughtRows(ABC):
    """Rows to find in the files of a table; picklable."""

    schema: Schema
    """The columns that tell them."""

    @abstractmethod
    def matches(self, rows: pa.Table) -> Positions:
        """Return the numbers of the rows that are sought, ascending.

        Args:
            rows: Rows with the columns of `schema`; they may have others.
        """

    @abstractmethod
    def may_have(self, file: FileEntry) -> bool:
        """Return True if a file with these bounds may have such rows."""

    @abstractmethod
    def is_named(self, file: FileEntry, partition: Mapping[int, Any]) -> bool:
        """Return True if the bounds or the partition of a file have the values of such a row.

        Args:
            partition: The values of the identity fields of the file's partition, by the id of their column.
        """

    @abstractmethod
    def of_columns(self, ids: Collection[int]) -> SoughtRows | None:
        """Return what is sought in files with these columns alone; None if they have no column that tells."""

    @abstractmethod
    def are_texts(self, texts: Collection[str]) -> bool:
        """Return True if these are the texts of such a row's values, among others."""


@dataclass(frozen=True)
class SoughtKeys(SoughtRows):
    """Rows with one of some keys.

    Args:
        schema: The key columns of the table.
        keys: Their values, in normal form.
        texts: Their values as people write them.
    """

    schema: Schema
    keys: pa.Table
    texts: tuple[tuple[str, ...], ...]

    def matches(self, rows: pa.Table) -> Positions:
        return self._search.rows(normal_rows(rows.select(self.keys.column_names)))

    def may_have(self, file: FileEntry) -> bool:
        return may_have(self._ranges, file)

    def is_named(self, file: FileEntry, partition: Mapping[int, Any]) -> bool:
        named = [_values(field, file, partition) for field in self.schema.fields]
        return any(
            all(_is_among(value, values) for value, values in zip(key, named, strict=True))
            for key in self._beginning_with(named[0])
        )

    def of_columns(self, ids: Collection[int]) -> SoughtKeys | None:
        places = [place for place, field in enumerate(self.schema.fields) if field.field_id in ids]
        if len(places) == len(self.schema.fields):
            return self
        texts = tuple(tuple(text[place] for place in places) for text in self.texts)
        schema = Schema(*(self.schema.fields[place] for place in places))
        return SoughtKeys(schema, self.keys.select(places), texts) if places else None

    def are_texts(self, texts: Collection[str]) -> bool:
        return any(set(key) <= set(texts) for key in self.texts)

    @cached_property
    def _search(self) -> KeySearch:
        return KeySearch(self.keys)

    @cached_property
    def _ranges(self) -> list[SearchedKey]:
        return [(field, ranges_of(self.keys[number])) for number, field in enumerate(self.schema.fields)]

    @cached_property
    def _by_first(self) -> dict[Any, list[tuple[Any, ...]]]:
        """The keys, in the form of Iceberg's bounds, by the value of their first column."""
        by_first: dict[Any, list[tuple[Any, ...]]] = {}
        for key in zip(*map(_in_bounds, self.keys.columns), strict=True):
            by_first.setdefault(key[0], []).append(key)
        return by_first

    def _beginning_with(self, values: Collection[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield the keys whose first column has one of these values, or a longer one than a bound has."""
        is_cut = any(isinstance(value, str | bytes) and len(value) >= _CUT for value in values)
        for first in self._by_first if is_cut else values:
            yield from self._by_first.get(first, ())


def _in_bounds(column: pa.ChunkedArray) -> list[Any]:
    numbers = whole_numbers(column)
    return column.to_pylist() if numbers is None else [int(number) for number in numbers]


def _values(field: Any, file: FileEntry, partition: Mapping[int, Any]) -> set[Any]:
    """Return the values that a file's bounds and partition have of a column."""
    lower, upper = file.lower.get(field.field_id), file.upper.get(field.field_id)
    of_uuids = isinstance(field.field_type, UUIDType)
    bounds = (lower, upper) if of_uuids else decoded_bounds(field.field_type, lower, upper)
    value = partition.get(field.field_id)
    return {*bounds, value.bytes if isinstance(value, uuid.UUID) else value} - {None}


def _is_among(value: Any, values: Collection[Any]) -> bool:
    """Return True if a value is one of some, or if one of these is a bound that was cut from it."""
    return (
        value in values
        or any(
            isinstance(value, type(other))
            and isinstance(other, str | bytes)
            and len(other) >= _CUT
            # The last character of an upper bound that was cut is the next one.
            and (value.startswith(other) or value.startswith(other[:-1]))
            for other in values
        )
    )


def keys_of(table: Table, keys: Any) -> SoughtKeys:
    """Return the rows of a table with some keys.

    Args:
        keys: An Arrow table, or a sequence of mappings, of values of the key columns.

    Raises:
        ConfigError: If there is no key; if a column is none of the table's, or nested; if a value is null, or does not
            fit its column.
    """
    rows = pa.table(keys) if hasattr(keys, "__arrow_c_stream__") else None
    names = list(rows.column_names if rows is not None else keys[0])
    if not names or (rows is not None and not rows.num_rows):
        raise ConfigError("keys are empty", hint='the key columns and their values: [{"id": 7}]')
    schema = Schema(*(_key_field(table, name) for name in names))
    fields = arrow_schema(rows_schema(schema))
    columns = [
        _column(fields.field(name), rows[name] if rows is not None else _given(keys, names, name)) for name in names
    ]
    texts = tuple(zip(*([_text(value) for value in column.to_pylist()] for column in columns), strict=True))
    return SoughtKeys(schema, normal_rows(pa.Table.from_arrays(columns, names)), texts)


def _given(keys: Sequence[Mapping[str, Any]], names: Sequence[str], name: str) -> list[Any]:
    for key in keys:
        if set(key) != set(names):
            raise ConfigError(f"a key has the columns {', '.join(key)}", hint=f"all keys have {', '.join(names)}")
    return [key[name] for key in keys]


def _key_field(table: Table, name: str) -> Any:
    fields = {field.name: field for field in table.schema().fields}
    if name not in fields:
        raise ConfigError(
            f"table {'.'.join(table.name())} has no column {name!r} that keys can have", hint=near(name, list(fields))
        )
    if not fields[name].field_type.is_primitive:
        raise ConfigError(
            f"column {name!r} of table {'.'.join(table.name())} can't be a key: it is {fields[name].field_type}",
            hint="name a column of numbers, texts, bytes, dates, times or UUIDs",
        )
    return fields[name]


def _column(field: pa.Field, values: Any) -> pa.Array:
    """Return the values of a key column in the type in which files are read."""
    try:
        if isinstance(values, list):
            if any(isinstance(value, bool) for value in values) and not pa.types.is_boolean(field.type):
                raise TypeError(f"True and False are no values of {field.type}")
            of_texts = _of_texts(values, field.type)
            column = array_of(values, field.type) if of_texts is None else of_texts
        else:
            column = exact_cast(values.combine_chunks(), field.type)
    except (pa.ArrowException, ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"a key does not fit column {field.name!r}, which is {field.type}: {error}",
            hint="give values of the column's type",
        ) from error
    if column.null_count:
        raise ConfigError(f"a key has null in column {field.name!r}", hint="a null equals no value: leave it out")
    return column


def _of_texts(values: list[Any], data_type: pa.DataType) -> pa.Array | None:
    """Return the values that texts tell; None if not all are texts."""
    if not all(isinstance(value, str) for value in values):
        return None
    if data_type == pa.uuid():
        return array_of([uuid.UUID(value) for value in values], data_type)
    return exact_cast(pa.array(values), data_type)


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


@dataclass(frozen=True)
class SoughtLetters(SoughtRows):
    """Dead letters whose texts have each value of one of some keys as a word.

    Args:
        schema: The columns of texts of their table.
    """

    schema: Schema
    texts: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, table: Table, keys: Iterable[tuple[str, ...]]) -> SoughtLetters:
        """Return the letters of a table with some keys."""
        texts = (field for field in table.schema().fields if isinstance(field.field_type, StringType))
        return cls(Schema(*texts), tuple(keys))

    def matches(self, rows: pa.Table) -> Positions:
        names = [field.name for field in self.schema.fields]
        letters = zip(*(rows[name].to_pylist() for name in names), strict=True)
        return np.array([number for number, letter in enumerate(letters) if self._has_key(letter)], np.int64)

    def may_have(self, file: FileEntry) -> bool:
        return True

    def is_named(self, file: FileEntry, partition: Mapping[int, Any]) -> bool:
        bounds = (
            decoded_bounds(field.field_type, file.lower.get(field.field_id), file.upper.get(field.field_id))
            for field in self.schema.fields
        )
        return self._has_key([*(text for pair in bounds for text in pair), *map(str, partition.values())])

    def of_columns(self, ids: Collection[int]) -> SoughtLetters | None:
        fields = [field for field in self.schema.fields if field.field_id in ids]
        return SoughtLetters(Schema(*fields), self.texts) if fields else None

    def are_texts(self, texts: Collection[str]) -> bool:
        return self._has_key([*texts])

    def _has_key(self, letter: Sequence[str | None]) -> bool:
        text = "\n".join(text for text in letter if text)
        first = {match[0] for match in self._first.finditer(text)}
        return bool(first) and any(
            _forms(key[0]) & first and all(_words(_forms(value)).search(text) for value in key[1:])
            for key in self.texts
        )

    @cached_property
    def _first(self) -> re.Pattern[str]:
        """Finds the values of the first key column."""
        return _words({form for key in self.texts for form in _forms(key[0])})


def _forms(value: str) -> set[str]:
    """Return a text as it stands alone, and in JSON."""
    return {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}


def _words(texts: Collection[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, sorted(texts, key=len, reverse=True)))})(?!\w)")
