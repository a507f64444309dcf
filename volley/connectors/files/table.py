"""Reads files as a table that is joined: all of them in one state, which their names, sizes and times tell."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from tempfile import TemporaryDirectory

import pyarrow as pa

from volley.connectors.files.listing import LoggedFile, check_not_empty, list_files
from volley.connectors.files.reader import FileReader, check_declared, open_reader
from volley.contracts.dimension import DimensionReader, Version
from volley.contracts.source import SourceContext
from volley.errors import SnapshotNotFoundError, SourceError
from volley.formats.files import Files
from volley.secrets import redact_uri

__all__ = ["FileDimensionReader"]


class FileDimensionReader(DimensionReader):
    """Reads the files of a FileSource that are there, as often as they change; their schema is that of the first."""

    def __init__(self, files: Files) -> None:
        check_declared(files, "a table that is joined")
        reader = _opened(files, None)
        # One that was inferred stays as it is.
        self._files = replace(files, declared=reader.columns.schema)
        self.schema = reader.schema

    def version(self) -> Version:
        return _version_of(self._listed())

    def read(self, version: Version, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        listed = self._listed()
        self._check(listed, version)
        try:
            yield from _opened(self._files, frozenset(columns)).read([(file, (0, 1)) for file in listed])
        except SourceError as error:
            self._check(self._listed(), version, error)
            raise
        self._check(self._listed(), version)

    def _listed(self) -> list[LoggedFile]:
        listed = list_files(self._files.url, self._files.storage_options, exclude=self._files.exclude)
        if not listed:
            check_not_empty(self._files.url, self._files.storage_options)
        return listed

    def _check(self, listed: Sequence[LoggedFile], version: Version, error: Exception | None = None) -> None:
        """Raise SnapshotNotFoundError, from an error that it explains, if the files are not those of a version."""
        if _version_of(listed) != version:
            raise SnapshotNotFoundError(
                f"{redact_uri(self._files.url)} has been changed", hint="put the files back as they were"
            ) from error


def _opened(files: Files, columns: frozenset[str] | None) -> FileReader:
    with TemporaryDirectory(prefix="volley-") as state:
        return open_reader(files, SourceContext(state, columns=columns), None)


def _version_of(listed: Sequence[LoggedFile]) -> Version:
    entries = json.dumps([(file.path, file.size, file.modified) for file in listed])
    return {"files": hashlib.sha256(entries.encode()).hexdigest()}
