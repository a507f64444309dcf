"""Lists the file formats of a FileSource: file extensions, options, and the module that reads each."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from typing import TypeAlias

    import pyarrow as pa

    from volley.bad_rows import BadRow, PositionedBatch
    from volley.formats.input_file import InputFile

    Read: TypeAlias = Callable[[InputFile, pa.Schema, tuple[int, int], Mapping[str, Any]], Iterator[pa.RecordBatch]]

__all__ = ["FORMATS", "FileFormat", "Files", "Format", "FormatReader", "WrittenFormat", "format_of"]

FileFormat = Literal["json", "csv", "parquet", "orc", "avro"]
WrittenFormat = Literal["json", "csv", "parquet"]

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


@dataclass(frozen=True)
class FormatReader:
    """The functions that read files of one format as Arrow.

    Args:
        check: Raises ConfigError for a schema that the format can't be read into.
        infer: Returns the schema of a file, given the format's options; None = the file has no rows to infer it from.
        read: Yields the batches of a part of a file, in bounded memory; takes the file, the schema, the part (its
            number and the number of parts) and the options.
        read_tolerant: Like `read`, with the place of each row and a `BadRow` for each row that can't be read.
        read_encoded: Like `read`, but may yield a column that the file stores as dictionary and indices as a
            dictionary array; None = the format has no dictionaries.
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
    """A file format, with what is needed to check a FileSource.

    Args:
        extensions: The file extensions of the format.
        module: The module that has its `FormatReader` under the name ``FORMAT``; imported when files are read.
        options: The names of its options.
        is_divisible: Returns True if several tasks can read parts of one large file with these options.
        is_text: True for a text format: a file may be compressed as a whole, and may have no rows.
    """

    extensions: tuple[str, ...]
    module: str
    options: tuple[str, ...] = ()
    is_divisible: Callable[[Mapping[str, Any]], bool] = lambda options: True
    is_text: bool = True

    @property
    def reader(self) -> FormatReader:
        """The functions that read files of this format."""
        reader: FormatReader = importlib.import_module(self.module).FORMAT
        return reader

    def compression(self, path: str) -> str | None:
        """Return the compression of a whole file by its extension; None = uncompressed, as Parquet always is."""
        if not self.is_text:
            return None
        return next((codec for ending, codec in _COMPRESSIONS.items() if path.endswith(ending)), None)

    def divides(self, path: str, options: Mapping[str, Any]) -> bool:
        """Return True if this file is read in parts when it is large."""
        return self.compression(path) is None and self.is_divisible(options)


@dataclass(frozen=True)
class Files:
    """The settings of a FileSource, as sent to the executors.

    Args:
        url: An absolute path or fsspec URL of a folder, a file or a glob.
        format: The name of the file format.
        options: The format's options.
        storage_options: Options of the fsspec file system.
        declared: The declared schema, in any form; None = infer it.
        must_exist: True: raise if there is no file.
    """

    url: str = field(repr=False)
    format: str
    options: Mapping[str, Any]
    storage_options: Mapping[str, Any] = field(repr=False)
    declared: Any
    must_exist: bool


def format_of(path: str) -> str | None:
    """Return the name of the format of a path, by its extension; None = unknown."""
    for ending in _COMPRESSIONS:
        path = path.removesuffix(ending)
    return next((name for name, file_format in FORMATS.items() if path.endswith(file_format.extensions)), None)


def _is_utf8(options: Mapping[str, Any]) -> bool:
    """Return True if text can be cut at line ends: in UTF-8, no other character has the byte of one."""
    return "encoding" not in options


def _has_no_newlines_in_values(options: Mapping[str, Any]) -> bool:
    """Return True if CSV can be cut at any line end: only a read from the start shows which ones are quoted."""
    return options.get("newlines_in_values", True) is False and _is_utf8(options)


FORMATS = {
    "json": Format(
        extensions=(".json", ".jsonl", ".ndjson"),
        module="volley.formats.json_lines",
        options=("encoding",),
        is_divisible=_is_utf8,
    ),
    "csv": Format(
        extensions=(".csv",),
        module="volley.formats.csv_salvage",
        options=("header", "delimiter", "null_values", "newlines_in_values", "encoding"),
        is_divisible=_has_no_newlines_in_values,
    ),
    "parquet": Format(extensions=(".parquet",), module="volley.formats.parquet", is_text=False),
    "orc": Format(extensions=(".orc",), module="volley.formats.orc", is_text=False),
    "avro": Format(
        extensions=(".avro",), module="volley.formats.avro_files", is_divisible=lambda options: False, is_text=False
    ),
}
