"""Reads columns from the names of folders: ``day=2026-01-01`` is a value of the column `day` (Hive's partitioning)."""

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

__all__ = ["FolderColumns", "folder_texts", "with_folders"]

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
    """Return a text as a value, as the reader of CSV files reads a field in quotes.

    Raises:
        BadValue, pyarrow.ArrowInvalid: If it is no value of the type.
    """
    line = b'"%b"\n' % text.replace('"', '""').encode("utf-8", "surrogateescape")
    file = InputFile("", len(line), lambda: nullcontext(io.BytesIO(line)))
    (batch,) = batches(file, pa.schema({"value": data_type}), CsvOptions(header=False))
    return batch.column(0)[0]


@dataclass(frozen=True)
class FolderColumns:
    """Sets columns of a file's rows to the values that its folders name; those in the file itself are not used."""

    schema: pa.Schema
    values: Mapping[str, pa.Scalar]

    @classmethod
    def of(cls, path: str, texts: Mapping[str, str | None], schema: pa.Schema) -> FolderColumns:
        """Return the columns of a file.

        Args:
            schema: The columns of the rows: columns of folders that are not in it are left out.

        Raises:
            SourceError: If a text is no value of its column's type; names the folder.
        """
        fields = [field for field in schema if field.name in texts]
        return cls(schema, {field.name: _value_of(path, field, texts[field.name]) for field in fields})

    def of_file(self, columns: Sequence[pa.Field]) -> pa.Schema:
        """Return what to read of the file itself: at least one column, which tells the number of rows."""
        own = [field for field in self.schema if field.name not in self.values]
        return pa.schema(own or [field for field in columns if field.name not in self.values][:1] or self.schema)

    def add(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with the columns set."""
        return map(self._added, rows) if self.values else rows

    def add_tolerant(self, items: Iterator[PositionedBatch | BadRow]) -> Iterator[PositionedBatch | BadRow]:
        """Yield the same items, the batches with the columns set."""
        for item in items:
            yield item if isinstance(item, BadRow) else replace(item, batch=self._added(item.batch))

    def _added(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self.values:
            return batch
        count, values = batch.num_rows, self.values
        columns = [
            pa.repeat(values[name], count) if name in values else batch.column(name) for name in self.schema.names
        ]
        return make_batch(columns, self.schema)


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
