"""The formats that files are read in: how each is recognised, which options it knows, and which module reads it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias

    import pyarrow as pa

    from volley.bad_rows import BadRow, PositionedBatch
    from volley.formats.input_file import InputFile

    Read: TypeAlias = Callable[[InputFile, pa.Schema, tuple[int, int], Mapping[str, Any]], Iterator[pa.RecordBatch]]

__all__ = ["FORMATS", "Files", "Format", "FormatReader", "format_of"]

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


@dataclass(frozen=True)
class FormatReader:
    """How files of one format become Arrow.

    Args:
        check: Refuses a schema that the format can't be read into.
        infer: From a file and the format's options to a schema; None = the file has no rows to infer it from.
        read: From a file, the schema, the part of it to read and the options to batches, in bounded memory.
        read_tolerant: The same, with the place of each row, and with the rows that can't be read.
        read_encoded: As `read`, but a column that is stored as dictionary and indices may stay so; None = there are
            none.
    """

    check: Callable[[pa.Schema], None]
    infer: Callable[[InputFile, Mapping[str, Any]], pa.Schema | None]
    read: Read
    read_tolerant: Callable[
        [InputFile, pa.Schema, tuple[int, int], Mapping[str, Any]], Iterator[PositionedBatch | BadRow]
    ]
    read_encoded: Read | None = None


@dataclass(frozen=True)
class Format:
    """One file format, as a FileSource is checked against it.

    Args:
        extensions: The file names it is recognised by.
        module: The module that has its `FormatReader` under the name ``FORMAT``; imported when files are read.
        options: The options it knows.
        is_divisible: Whether a large file is read in parts, by several tasks, with these options.
        is_text: True if it is text, which may be compressed as a whole and have no rows.
    """

    extensions: tuple[str, ...]
    module: str
    options: tuple[str, ...] = ()
    is_divisible: Callable[[Mapping[str, Any]], bool] = lambda options: True
    is_text: bool = True

    @property
    def reader(self) -> FormatReader:
        """How its files become Arrow."""
        found: FormatReader = importlib.import_module(self.module).FORMAT
        return found

    def compression(self, path: str) -> str | None:
        """How a file of this format is compressed as a whole, by its name; Parquet never is."""
        return next((kind for end, kind in _COMPRESSIONS.items() if path.endswith(end)), None) if self.is_text else None

    def divides(self, path: str, options: Mapping[str, Any]) -> bool:
        """True if this file is read in parts when it is large."""
        return self.compression(path) is None and self.is_divisible(options)


@dataclass(frozen=True)
class Files:
    """Which files to read, and how: the settings of a FileSource; they travel to the executors.

    Args:
        url: Where they are: an absolute path or an fsspec URL of a folder, a file or a glob.
        format: The name of their format.
        options: The format's options.
        storage_options: For fsspec.
        declared: The declared schema, in any form; None = it is inferred.
        must_exist: True: that there is no file is an error.
    """

    url: str = field(repr=False)
    format: str
    options: Mapping[str, Any]
    storage_options: Mapping[str, Any] = field(repr=False)
    declared: Any
    must_exist: bool


def format_of(path: str) -> str | None:
    """The name of the format that a path's extension tells."""
    for ending in _COMPRESSIONS:
        path = path.removesuffix(ending)
    return next((name for name, known in FORMATS.items() if path.endswith(known.extensions)), None)


def _has_no_newlines_in_values(options: Mapping[str, Any]) -> bool:
    """True if CSV can be cut at any line end. Whether one is within quotes shows from the file's beginning only."""
    return options.get("newlines_in_values", True) is False


FORMATS = {
    "json": Format(extensions=(".json", ".jsonl", ".ndjson"), module="volley.formats.json_lines"),
    "csv": Format(
        extensions=(".csv",),
        module="volley.formats.csv_salvage",
        options=("header", "delimiter", "null_values", "newlines_in_values"),
        is_divisible=_has_no_newlines_in_values,
    ),
    "parquet": Format(extensions=(".parquet",), module="volley.formats.parquet", is_text=False),
}
