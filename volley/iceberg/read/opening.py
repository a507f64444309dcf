"""Opens a table's files for reading."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyiceberg.io import FileIO

from volley.errors import SourceError
from volley.formats.input_file import InputFile
from volley.iceberg.read.entries import FileEntry
from volley.iceberg.storage.errors import storage_errors
from volley.secrets import redact_uri, redacted

__all__ = ["input_file", "open_input", "unreadable"]


@contextmanager
def open_input(io: FileIO, path: str) -> Iterator[Any]:
    """Open a file for reading, for as long as the context lasts.

    Raises:
        SourceError: If it does not exist.
        StorageError: If the storage fails or refuses.
    """
    with storage_errors(path, "reading"):
        try:
            stream = io.new_input(path).open()
        except FileNotFoundError as error:
            raise SourceError(
                f"file {redact_uri(path)} of the table is gone",
                hint="its snapshot has expired: start the job again from a newer one, and expire snapshots later than "
                "the slowest reader needs them",
            ) from redacted(error)
    with stream:
        yield stream


def input_file(io: FileIO, file: FileEntry) -> InputFile:
    """Return a data file or an equality-delete file as a file of the formats.

    Raises:
        SourceError: If it is neither Parquet nor ORC.
    """
    if file.format not in ("PARQUET", "ORC"):
        raise unreadable(file)
    return InputFile(file.path, file.size, lambda: open_input(io, file.path))


def unreadable(file: FileEntry) -> SourceError:
    """Return the error for a file in a format that can't be read."""
    return SourceError(
        f"file {redact_uri(file.path)} is {file.format}, only Parquet and ORC can be read",
        hint="rewrite the table's files as Parquet by the engine that wrote them",
    )
