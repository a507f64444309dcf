"""The formats that files are read in: how each is recognised, its schema inferred and its rows read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley.connectors import _csv_rows, _csv_salvage, _json_lines, _parquet_groups
from volley.connectors._input_file import InputFile
from volley.source import BadRow, Located

if TYPE_CHECKING:
    from typing import TypeAlias

    import pyarrow as pa

    Read: TypeAlias = Callable[[InputFile, pa.Schema, tuple[int, int], Mapping[str, Any]], Iterator[pa.RecordBatch]]

__all__ = ["FORMATS", "Format", "format_of"]

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


@dataclass(frozen=True)
class Format:
    """One file format.

    Args:
        extensions: The file names it is recognised by.
        check: Refuses a schema that the format can't be read into.
        infer: From a file and the format's options to a schema; None = the file has no rows to infer it from.
        read: From a file, the schema, the part of it to read and the options to batches, in bounded memory.
        read_tolerant: The same, with the place of each row, and with the rows that can't be read.
        read_encoded: As `read`, but a column that is stored as dictionary and indices may stay so; None = there are
            none.
        options: The options it knows.
        is_divisible: Whether a large file is read in parts, by several tasks, with these options.
        is_text: True if it is text, which may be compressed as a whole and have no rows.
    """

    extensions: tuple[str, ...]
    check: Callable[[pa.Schema], None]
    infer: Callable[[InputFile, Mapping[str, Any]], pa.Schema | None]
    read: Read
    read_tolerant: Callable[[InputFile, pa.Schema, tuple[int, int], Mapping[str, Any]], Iterator[Located | BadRow]]
    read_encoded: Read | None = None
    options: tuple[str, ...] = ()
    is_divisible: Callable[[Mapping[str, Any]], bool] = lambda options: True
    is_text: bool = True

    def compression(self, path: str) -> str | None:
        """How a file of this format is compressed as a whole, by its name; Parquet never is."""
        return next((kind for end, kind in _COMPRESSIONS.items() if path.endswith(end)), None) if self.is_text else None

    def divides(self, path: str, options: Mapping[str, Any]) -> bool:
        """True if this file is read in parts when it is large."""
        return self.compression(path) is None and self.is_divisible(options)


def format_of(path: str) -> str | None:
    """The name of the format that a path's extension tells."""
    for ending in _COMPRESSIONS:
        path = path.removesuffix(ending)
    return next((name for name, known in FORMATS.items() if path.endswith(known.extensions)), None)


FORMATS = {
    "json": Format(
        extensions=(".json", ".jsonl", ".ndjson"),
        check=_json_lines.check,
        infer=_json_lines.infer,
        read=_json_lines.read,
        read_tolerant=_json_lines.read_tolerant,
    ),
    "csv": Format(
        extensions=(".csv",),
        check=_csv_rows.check,
        infer=_csv_rows.infer,
        read=_csv_rows.read,
        read_tolerant=_csv_salvage.read_tolerant,
        options=("header", "delimiter", "null_values", "newlines_in_values"),
        is_divisible=_csv_rows.is_divisible,
    ),
    "parquet": Format(
        extensions=(".parquet",),
        check=_parquet_groups.check,
        infer=_parquet_groups.infer,
        read=_parquet_groups.read,
        read_tolerant=_parquet_groups.read_tolerant,
        read_encoded=_parquet_groups.read_encoded,
        is_text=False,
    ),
}
