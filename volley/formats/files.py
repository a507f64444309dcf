"""Lists the file formats of a FileSource, their options and readers, and packs files into splits."""

from __future__ import annotations

import importlib
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from volley.errors import ConfigError, SourceError
from volley.formats.change_options import CHANGES, ChangeFormat, ChangeOptions
from volley.formats.options import CsvOptions, JsonOptions, NoOptions, Policy
from volley.secrets import redact_uri

__all__ = [
    "FORMATS",
    "INCLUDE",
    "UNKNOWN",
    "FileFormat",
    "Files",
    "Format",
    "FormatReader",
    "OnReplaced",
    "Part",
    "WrittenFormat",
    "format_of",
    "pack",
]

T = TypeVar("T")
Part = tuple[int, int]
"""The number of a part of a file, and the number of its parts."""

_SMALLEST_SPLIT = 4 << 20
_LARGEST_SPLIT = 128 << 20
# The cost of opening a file, as bytes to read: 1 ms of CPU on a local disk, some 20 ms of waiting for an object store.
_OPENING = 1 << 20


def pack(files: Sequence[tuple[T, int, bool]], parallelism: int) -> list[list[tuple[T, Part]]]:
    """Pack files into splits of similar cost, in the files' order: small files together, a large file in parts.

    Args:
        files: Each file with its size in bytes and whether it can be read in parts.
        parallelism: The number of splits that are read at the same time.

    Example:
        >>> pack([("large", 400 << 20, True), ("small", 1 << 20, True)], parallelism=2)
        [[('large', (0, 3))], [('large', (1, 3))], [('large', (2, 3)), ('small', (0, 1))]]
    """
    total = sum(size for _, size, _ in files)
    target = min(_LARGEST_SPLIT, max(_SMALLEST_SPLIT, total / parallelism))
    pieces = [
        ((file, (part, parts)), size / parts + _OPENING)
        for file, size, divides in files
        for parts in [max(1, round(size / target)) if divides else 1]
        for part in range(parts)
    ]
    # Spread many small files over all cores, but not into more splits: each split writes its own data file.
    whole = sum(weight for _, weight in pieces)
    count = max(1, round(total / target), min(parallelism, round(whole / _SMALLEST_SPLIT)))
    splits: list[list[tuple[T, Part]]] = [[] for _ in range(count)]
    before = 0.0
    for piece, weight in pieces:
        middle = before + weight / 2
        splits[min(int(middle / whole * count), count - 1)].append(piece)
        before += weight
    return [split for split in splits if split]


if TYPE_CHECKING:
    from typing import TypeAlias

    import pyarrow as pa

    from volley.contracts.rows import BadRow, PositionedBatch
    from volley.formats.input_file import InputFile

    Rows: TypeAlias = Callable[[InputFile, pa.Schema, tuple[int, int], Any], Iterator[PositionedBatch | BadRow]]


FileFormat = Literal["json", "csv", "parquet", "orc", "avro"] | ChangeFormat
WrittenFormat = Literal["json", "csv", "parquet"]
OnReplaced = Literal["warn", "read", "fail"]
"""What a FileSource does with a file that was written again after it was found."""

INCLUDE = ("file", "row")
"""What a FileSource can add to each row: its file, and its number in the file."""

UNKNOWN = "file_unknown"
"""The column of unknown fields that are kept."""

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".xz": "xz", ".zip": "zip"}
_PACKED = (".7z", ".lz4", ".lzma", ".br", ".tar", ".tgz", ".sz", ".snappy", ".Z")
"""How names of files end that are packed in a way that is not read."""


@dataclass(frozen=True)
class FormatReader:
    """The functions that read files of one format as Arrow.

    Args:
        infer: Returns the schema of a file, given the format's options; None = the file has no rows to infer it from.
        rows: Yields the batches of a part of a file, in bounded memory, with the place of each row, and a `BadRow` for
            each row that can't be read; takes the file, the schema, the part (its number and the number of parts) and
            the options.
        check: Raises ConfigError for a schema that the format can't be read into.
        encoded_rows: Like `rows`, but may yield a column that the file stores as dictionary and indices as a dictionary
            array; None = the format has no dictionaries.
        rows_before: Returns the number of the file's rows before a part; None = only a read from the start tells.
        columns: Returns the columns of rows: those that are declared, and what the format adds.
        hint: The way out for a bad row.
    """

    infer: Callable[[InputFile, Any], pa.Schema | None]
    rows: Rows
    check: Callable[[pa.Schema], None] = lambda schema: None
    encoded_rows: Rows | None = None
    rows_before: Callable[[InputFile, tuple[int, int]], int] | None = None
    columns: Callable[[pa.Schema, Any], pa.Schema] = lambda schema, options: schema
    hint: str = "mend the file, declare a schema that fits it, or give the sink a dead_letter for such rows"


@dataclass(frozen=True)
class Format:
    """A file format, with what is needed to check a FileSource.

    Args:
        module: The module that has its `FormatReader`; imported when files are read.
        name: The name of the reader in the module.
        is_text: True for a text format: a file may be compressed as a whole, and may have no rows.
        counts_rows: True if a file tells the number of rows before each of its parts.
        by_name: True if a file is read by the names of its columns, so that some can be left out.
        whole: The files that one task reads, whatever the options.
        is_safe: False if some damage ends the process that reads a file: the driver then leaves it to a worker.
    """

    extensions: tuple[str, ...]
    module: str
    options: type[NoOptions] = NoOptions
    is_text: bool = True
    counts_rows: bool = False
    by_name: bool = True
    whole: str | None = None
    is_safe: bool = True
    name: str = "FORMAT"

    @property
    def reader(self) -> FormatReader:
        """The functions that read files of this format."""
        reader: FormatReader = getattr(importlib.import_module(self.module), self.name)
        return reader

    def compression(self, path: str) -> str | None:
        """Return the compression of a whole file by its extension; None = uncompressed, as Parquet always is.

        Raises:
            SourceError: If the extension is that of one that is not read.
        """
        if not self.is_text:
            return None
        if _uncompressed(path).endswith(_PACKED):
            raise SourceError(
                f"{redact_uri(path)} is packed in a way that Volley does not read",
                hint=f"unpack it, or compress it as {', '.join(_COMPRESSIONS)}",
            )
        return next((codec for ending, codec in _COMPRESSIONS.items() if path.endswith(ending)), None)

    def undivided(self, path: str, options: NoOptions) -> str | None:
        """Return why a file is read by one task, however large it is; None if it is read in parts."""
        codec = self.compression(path)
        return options.undivided if codec is None else f"compressed by {codec}"


@dataclass(frozen=True)
class Files:
    """The settings of a FileSource, as sent to the executors.

    Args:
        url: An absolute path or fsspec URL of a folder, a file or a glob.
        declared: The declared schema, in any form; None = infer it.
        must_exist: True: raise if there is no file.
        include: What to add to each row: ``"file"``, ``"row"``.
        on_unknown: What to do with fields that the schema lacks.
        exclude: Patterns of names of files and folders that are left out.
        on_replaced: What to do with a file that was written again after it was found.
    """

    url: str = field(repr=False)
    format: str
    options: NoOptions
    storage_options: Mapping[str, Any] = field(repr=False)
    declared: Any
    must_exist: bool
    include: tuple[str, ...] = ()
    on_unknown: Policy = "drop"
    exclude: tuple[str, ...] = ()
    on_replaced: OnReplaced = "warn"

    def undivided(self, path: str) -> str | None:
        """Return why a file is read by one task, however large it is; None if it is read in parts."""
        format = FORMATS[self.format]
        if "row" in self.include and not format.counts_rows:
            return "its rows are numbered from its start"
        return format.undivided(path, self.options)

    @property
    def encoding(self) -> str | None:
        """The encoding of their text; None = UTF-8, or no text."""
        return self.options.encoding if isinstance(self.options, JsonOptions) else None


def _uncompressed(path: str) -> str:
    """Return a path without the ending of its compression."""
    return path.removesuffix(next((ending for ending in _COMPRESSIONS if path.endswith(ending)), ""))


def format_of(path: str) -> str:
    """Return the name of the format of a path, by its extension.

    Raises:
        ConfigError: If the extension is that of no format; says what the path tells.
    """
    plain = _uncompressed(path)
    for name, file_format in FORMATS.items():
        if plain.endswith(file_format.extensions):
            return name
    if packed := next((ending for ending in _PACKED if plain.endswith(ending)), None):
        raise ConfigError(
            f"files that end in {packed}, as {redact_uri(path)!r}, are packed in a way that Volley does not read",
            hint=f"unpack them, or compress them as {', '.join(_COMPRESSIONS)}",
        )
    extension = posixpath.splitext(plain)[1]
    reason = f"ends in {extension}, which is no format's extension" if extension else "has no extension"
    raise ConfigError(
        f"the format of {redact_uri(path)!r} is not known: it {reason}",
        hint=f"format= one of {', '.join(map(repr, FORMATS))}",
    )


@dataclass(frozen=True)
class _AvroOptions(NoOptions):
    """The options of Avro files: none."""

    @property
    def undivided(self) -> str | None:
        return "Avro has no index of its blocks"


FORMATS = {
    "json": Format(
        extensions=(".json", ".jsonl", ".ndjson"),
        module="volley.formats.json_lines",
        options=JsonOptions,
        whole="JSON arrays and compressed files",
    ),
    "csv": Format(
        extensions=(".csv",),
        module="volley.formats.csv_salvage",
        options=CsvOptions,
        by_name=False,
        whole="compressed files",
    ),
    "parquet": Format(extensions=(".parquet",), module="volley.formats.parquet", is_text=False, counts_rows=True),
    # ORC has no checksums, and Arrow's reader of it believes what a file says.
    "orc": Format(extensions=(".orc",), module="volley.formats.orc", is_text=False, is_safe=False),
    "avro": Format(extensions=(".avro",), module="volley.formats.avro_files", options=_AvroOptions, is_text=False),
    **{
        name: Format(
            extensions=(),
            module="volley.formats.changes.lines",
            options=ChangeOptions,
            by_name=False,
            whole="compressed files",
            name=name,
        )
        for name in CHANGES
    },
}
