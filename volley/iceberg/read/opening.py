"""Opens a table's files for reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pyiceberg.io import FileIO

from volley.errors import SourceError
from volley.formats import avro_files, orc, parquet
from volley.formats.avro_files import OpenAvro
from volley.formats.input_file import InputFile
from volley.formats.orc import OpenOrc
from volley.formats.parquet import OpenParquet
from volley.iceberg.read.entries import FileEntry
from volley.iceberg.storage.errors import storage_errors
from volley.secrets import redact_uri, redacted

__all__ = ["StoredFile", "check_format", "open_input", "open_stored"]

StoredFile = OpenParquet | OpenOrc | OpenAvro

_OPENERS: dict[str, Callable[[InputFile], AbstractContextManager[StoredFile]]] = {
    "PARQUET": parquet.opened,
    "ORC": orc.opened,
    "AVRO": avro_files.opened,
}


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


def open_stored(io: FileIO, file: FileEntry) -> AbstractContextManager[StoredFile]:
    """Open a data file or a delete file that is not a deletion vector, for as long as the context lasts.

    Raises:
        SourceError: If the file is gone, damaged, encrypted or in a format that can't be read.
        StorageError: If the storage fails.
    """
    check_format(file)
    return _OPENERS[file.format](InputFile(file.path, file.size, lambda: open_input(io, file.path)))


def check_format(file: FileEntry) -> None:
    """Raise SourceError if a data file or a delete file is in a format that can't be read."""
    if file.format not in _OPENERS and file.blob_offset is None:
        raise SourceError(
            f"file {redact_uri(file.path)} is {file.format}, only Parquet, ORC and Avro can be read",
            hint="rewrite the table's files as Parquet by the engine that wrote them",
        )
