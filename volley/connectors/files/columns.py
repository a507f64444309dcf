"""Columns that a file itself does not have: those that its folders name, as in Hive, its path, numbers of its rows."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from urllib.parse import unquote

import pyarrow as pa

from volley.columns.dictionaries import make_batch
from volley.contracts.rows import BadRow, PositionedBatch
from volley.errors import ConfigError, SourceError
from volley.formats.csv import batches, check
from volley.formats.csv_values import BadValue
from volley.formats.input_file import InputFile
from volley.formats.options import CsvOptions
from volley.secrets import redact_uri
from volley.types.arrow import type_name

__all__ = ["FileColumns", "folder_texts", "folder_values", "with_folders", "with_included"]

_FIELDS = {"file": pa.field("file_path", pa.string()), "row": pa.field("file_row", pa.int64())}
_NULL = "__HIVE_DEFAULT_PARTITION__"
_LONG = re.compile("0|-?[1-9][0-9]*")
_REMEMBERED = 4096


def folder_texts(path: str, root: str) -> dict[str, str | None]:
    """Return the columns that the folders between a source's root and a file name, with their texts; None = null.

    Args:
        root: The path of the source's folder, or of the folder in which its glob starts.

    Raises:
        SourceError: If two folders name one column, or a name has bytes that are no UTF-8.

    Example:
        >>> folder_texts("/in/day=2026-01-01/city=S%C3%A8te/1.csv", "/in")
        {'day': '2026-01-01', 'city': 'Sète'}
    """
    texts: dict[str, str | None] = {}
    for folder in path.removeprefix(root).split("/")[:-1]:
        name, equals, text = folder.partition("=")
        if not name or not equals:
            continue
        name, text = _unquoted(path, name), _unquoted(path, text)
        if name in texts:
            raise SourceError(f"{redact_uri(path)}: two folders name the column {name!r}", hint="rename one of them")
        texts[name] = None if text == _NULL else text
    return texts


def _unquoted(path: str, text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{redact_uri(path)}: the name of the folder {text!r} is no UTF-8 once its %… are decoded",
            hint="rename the folder",
        ) from error


def with_folders(schema: pa.Schema, files: Iterable[Mapping[str, str | None]]) -> pa.Schema:
    """Return an inferred schema with the columns of folders.

    A column is a long if all its texts are whole numbers without leading zeros, a date if all are dates, else a string.
    """
    texts: dict[str, set[str]] = {}
    for file in files:
        for name, text in file.items():
            texts.setdefault(name, set()).update(() if text is None else (text,))
    columns = {field.name: field for field in schema}
    return pa.schema([*(columns | {name: pa.field(name, _type_of(texts[name])) for name in texts}).values()])


def _type_of(texts: set[str]) -> pa.DataType:
    if not texts:
        return pa.string()
    if all(_LONG.fullmatch(text) and _is_value(text, pa.int64()) for text in texts):
        return pa.int64()
    return pa.date32() if all(_is_value(text, pa.date32()) for text in texts) else pa.string()


def _is_value(text: str, data_type: pa.DataType) -> bool:
    try:
        _value(text, data_type)
    except (BadValue, pa.ArrowInvalid):
        return False
    return True


@lru_cache(_REMEMBERED)
def _value(text: str, data_type: pa.DataType) -> pa.Scalar:
    """Return a text as a value, as the reader of CSV files reads a field in quotes."""
    line = b'"%b"\n' % text.replace('"', '""').encode("utf-8", "surrogateescape")
    file = InputFile("", len(line), lambda: nullcontext(io.BytesIO(line)))
    (batch,) = batches(file, pa.schema({"value": data_type}), CsvOptions(header=False))
    return batch.column(0)[0]


def folder_values(path: str, texts: Mapping[str, str | None], schema: pa.Schema) -> dict[str, pa.Scalar]:
    """Return the values that a file's folders name of the columns of a schema.

    Raises:
        SourceError: If a text is no value of its column's type; names the folder.
    """
    return {field.name: _value_of(path, field, texts[field.name]) for field in schema if field.name in texts}


def _value_of(path: str, field: pa.Field, text: str | None) -> pa.Scalar:
    if text is None:
        return pa.scalar(None, field.type)
    try:
        check(pa.schema([field]))
        return _value(text, field.type)
    except (BadValue, ConfigError, pa.ArrowInvalid) as error:
        raise SourceError(
            f"{redact_uri(path)}: the folder {f'{field.name}={text}'!r} has no {type_name(field.type)}",
            hint=f"rename the folder, or declare {field.name!r} with a type that fits",
        ) from error


def with_included(schema: pa.Schema, include: Sequence[str]) -> pa.Schema:
    """Return the columns of files with those that are added.

    Raises:
        ConfigError: If the files have a column of that name.
    """
    for part in include:
        if (name := _FIELDS[part].name) in schema.names:
            raise ConfigError(
                f"the files have a column {name!r}, and include={part!r} adds one",
                hint="leave it out of the schema, or of include",
            )
    return pa.schema([*schema, *(_FIELDS[part] for part in include)])


@dataclass
class FileColumns:
    """Sets the columns of a file's rows that it does not have itself."""

    content: pa.Schema  # the columns of the rows but the included ones
    # The values that its folders name; columns of these names in the file itself are not used.
    values: Mapping[str, pa.Scalar]
    include: Sequence[str]  # what to add: "file", "row"
    path: str
    before: int  # the number of the file's rows before those that come next; bad rows count
    dictionaries: bool  # True: the path may be a dictionary array

    def of_file(self, columns: Sequence[pa.Field]) -> pa.Schema:
        """Return what to read of the file itself: at least one column, which tells the number of rows."""
        own = [field for field in self.content if field.name not in self.values]
        return pa.schema(own or [field for field in columns if field.name not in self.values][:1] or self.content)

    def add(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with the columns set."""
        return map(self._added, batches) if self.values or self.include else batches

    def add_tolerant(self, items: Iterator[PositionedBatch | BadRow]) -> Iterator[PositionedBatch | BadRow]:
        """Yield the same items, the batches with the columns set."""
        for item in items:
            if isinstance(item, BadRow):
                self.before += 1
                yield item
            else:
                batch = self._added(item.batch)
                yield item if batch is item.batch else replace(item, batch=batch)

    def _added(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        count, values = batch.num_rows, self.values
        if values:
            names = self.content.names
            columns = [pa.repeat(values[name], count) if name in values else batch.column(name) for name in names]
            batch = make_batch(columns, self.content)
        for part in self.include:
            batch = batch.append_column(_FIELDS[part].name, self._path(count) if part == "file" else self._rows(count))
        self.before += count
        return batch

    def _path(self, count: int) -> pa.Array:
        if self.dictionaries:
            return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), pa.array([self.path]))
        return pa.repeat(self.path, count)

    def _rows(self, count: int) -> pa.Array:
        return pa.arange(self.before + 1, self.before + count + 1)
