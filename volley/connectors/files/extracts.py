"""Full extracts in files: those whose paths, folders or rows tell the same version are one extract."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from itertools import groupby
from typing import Any

import pyarrow as pa

from volley.columns.snapshots import PRESENT, given_version, of_versions, version_number
from volley.connectors.files.columns import folder_values
from volley.connectors.files.listing import LoggedFile, list_files, start_of
from volley.connectors.files.reader import FileReader, FileSplit, folders_of
from volley.contracts.extracts import Extract, Extracts
from volley.contracts.source import SplitReader
from volley.errors import ConfigError, SourceError, near
from volley.formats.files import Files, pack
from volley.secrets import redact_uri
from volley.storage.paths import filesystem
from volley.storage.remembered import read_or_create
from volley.storage.state_formats import SCHEMA
from volley.types.arrow import read_schema, type_name

__all__ = ["FileExtracts", "FileStates"]


@dataclass(frozen=True)
class FileExtracts(Extracts):
    """Lists files by version.

    Args:
        reader: Reads the files.
        place: A pattern of the path behind the source's own, with one group; or the name of a column that folders name
            (``day=2026-01-01``), or that the rows have. A number, date or time = the version of all files.
        saved: The URL of the file that remembers the version's type.
    """

    reader: FileReader
    place: str | int | date
    saved: str
    _known: dict[LoggedFile, int] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.place, str) and not self._pattern and self.version not in self.schema.names:
            raise ConfigError(
                f"version {self.place!r} is no column of {redact_uri(self.reader.files.url)}",
                hint=f"{near(self.version, self.schema.names)}; or give a pattern of the path with a group: "
                r'version=r"(\d{4}-\d\d-\d\d)"',
            )

    @property
    def schema(self) -> pa.Schema:
        return self.reader.schema

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return re.compile(self.place) if isinstance(self.place, str) and "(" in self.place else None

    @property
    def version(self) -> str:
        """The name of the pattern's group, or of the column."""
        if self._pattern:
            return next(iter(self._pattern.groupindex), str(PRESENT.name))
        return self.place if isinstance(self.place, str) else str(PRESENT.name)

    @property
    def version_type(self) -> pa.DataType:
        return self._version_type

    @cached_property
    def _version_type(self) -> pa.DataType:
        if not isinstance(self.place, str):
            return given_version(self.place)[1]
        if self.version not in self.schema.names:
            return read_or_create(self.saved, SCHEMA, self._inferred, read_schema).field(0).type
        data_type = self.schema.field(self.version).type
        if (version_type := of_versions(data_type)) is None:
            raise ConfigError(
                f"version {self.version!r} is {type_name(data_type)}", hint="take a whole number, a date or a time"
            )
        return version_type

    def _inferred(self) -> bytes:
        """Return the type of the version in the path of the first file, as a serialized schema."""
        if not (files := _files(self.reader.files)):
            raise SourceError(
                f"{redact_uri(self.reader.files.url)} has no extract yet, to tell the type of its version",
                hint=f"put the first one there, or declare the column {self.version!r} in the schema",
            )
        text = self._text(files[0])
        if (data_type := _type_of(text)) is None:
            raise ConfigError(
                f"version={self.place!r} finds {text!r} in {redact_uri(files[0].path)}",
                hint="let its group find a whole number, a date as 2026-01-31, or a time as 2026-01-31T12:00",
            )
        serialized: bytes = pa.schema({self.version: data_type}).serialize().to_pybytes()
        return serialized

    def listed(self, since: int | None) -> Sequence[Extract]:
        dated = sorted(((self._version_of(file), file) for file in _files(self.reader.files)), key=lambda pair: pair[0])
        groups = groupby(dated, key=lambda pair: pair[0])
        return [self._extract(version, [file for _, file in group]) for version, group in groups]

    def splits(self, version: int, proof: str, place: Mapping[str, Any]) -> list[FileSplit]:
        files = [file for file in _files(self.reader.files) if self._version_of(file) == version]
        if _proof_of(files, self._root) != proof:
            raise _changed(self.reader.files, files)
        return _packed(self.reader, files)

    def size(self, split: FileSplit) -> int | None:
        return self.reader.size(split)

    def split_reader(self) -> SplitReader:
        return self.reader.split_reader()

    def _extract(self, version: int, files: list[LoggedFile]) -> Extract:
        name = files[0].path if len(files) == 1 else f"{posixpath.dirname(files[0].path)}, {len(files)} files"
        times = [file.modified for file in files if file.modified is not None]
        size, modified = sum(file.size for file in files), max(times, default=None)
        return Extract(version, _proof_of(files, self._root), redact_uri(name), size, modified)

    @cached_property
    def _root(self) -> str:
        files = self.reader.files
        return filesystem(files.url, files.storage_options)[1]

    def _version_of(self, file: LoggedFile) -> int:
        if file not in self._known:
            self._known[file] = self._look(file)
        return self._known[file]

    def _look(self, file: LoggedFile) -> int:
        """Return the version that a file's path tells, or its first row."""
        if not isinstance(self.place, str):
            return given_version(self.place)[0]
        if self._pattern:
            value = pa.scalar(_parsed(self._text(file), self.version_type, file.path), self.version_type)
        else:
            folders = folder_values(file.path, folders_of(self.reader.files, file.path), self.schema)
            value = folders.get(self.version) or self._first(file)
        if not value.is_valid:
            raise SourceError(
                f"{redact_uri(file.path)} has no {self.version!r}: it is null", hint="give each extract a version"
            )
        return version_number(value.cast(self.version_type))

    def _text(self, file: LoggedFile) -> str:
        """Return what the pattern finds in a file's path."""
        assert self._pattern is not None
        path = file.path.removeprefix(start_of(self._root, file.path)) or posixpath.basename(file.path)
        if not (match := self._pattern.search(path)):
            raise SourceError(
                f"{redact_uri(file.path)} does not match version={self.place!r}",
                hint="take the file away, or leave it out by a glob in the source's path",
            )
        return match[1]

    def _first(self, file: LoggedFile) -> pa.Scalar:
        """Return the version in a file's first row."""
        for batch in self.reader.read([(file, (0, 1))]):
            if batch.num_rows:
                return batch.column(self.version)[0]
        raise SourceError(
            f"{redact_uri(file.path)} has no rows, and so no {self.version!r}",
            hint="take it away; or let its path tell the version, by a folder or a pattern",
        )


@dataclass(frozen=True)
class FileStates(Extracts):
    """All files as they are, whenever one of them has changed: their versions are the times of the looks.

    Args:
        reader: Reads the files.
    """

    reader: FileReader

    @property
    def keeps_versions(self) -> bool:
        return False

    @property
    def schema(self) -> pa.Schema:
        return self.reader.schema

    @property
    def version(self) -> str:
        return str(PRESENT.name)

    @property
    def version_type(self) -> pa.DataType:
        return PRESENT.type

    def listed(self, since: int | None) -> Sequence[Extract]:
        files = _files(self.reader.files)
        if not files:
            return []
        name, size = redact_uri(self.reader.files.url), sum(file.size for file in files)
        return [Extract(time.time_ns() // 1000, _state_of(files), name, size)]

    def splits(self, version: int, proof: str, place: Mapping[str, Any]) -> list[FileSplit]:
        files = _files(self.reader.files)
        if _state_of(files) != proof:
            raise _changed(self.reader.files, files)
        return _packed(self.reader, files)

    def size(self, split: FileSplit) -> int | None:
        return self.reader.size(split)

    def split_reader(self) -> SplitReader:
        return self.reader.split_reader()


def _files(files: Files) -> list[LoggedFile]:
    return sorted(list_files(files.url, files.storage_options, exclude=files.exclude), key=lambda file: file.path)


def _packed(reader: FileReader, files: Sequence[LoggedFile]) -> list[FileSplit]:
    return pack([(file, file.size, reader.files.undivided(file.path) is None) for file in files], reader.parallelism)


def _changed(source: Files, files: Sequence[LoggedFile]) -> SourceError:
    return SourceError(
        f"the extract of {redact_uri(source.url)} that an epoch reads has changed since it was found: it has "
        f"{len(files)} files now",
        hint='put its files back as they were; or start over: fresh=True, into="append" reads the extracts that are '
        "there, which changes nothing that an upsert by their version has written",
    )


def _state_of(files: Sequence[LoggedFile]) -> str:
    """Return a hash of the names, sizes and times of files."""
    entries = json.dumps([(file.path, file.size, file.modified) for file in files])
    return hashlib.sha256(entries.encode("utf-8", "surrogateescape")).hexdigest()


def _proof_of(files: Sequence[LoggedFile], root: str) -> str:
    """Return a hash of the names and sizes of files; without those of an object store's bucket or a folder above."""
    entries = json.dumps([(file.path.removeprefix(start_of(root, file.path)), file.size) for file in files])
    return hashlib.sha256(entries.encode("utf-8", "surrogateescape")).hexdigest()


def _type_of(text: str) -> pa.DataType | None:
    """Return the type of a version in a path; None = it is none."""
    if text.isascii() and text.isdecimal():
        return pa.int64()
    for parse, data_type in ((date.fromisoformat, pa.date32()), (datetime.fromisoformat, PRESENT.type)):
        try:
            parse(text)
        except ValueError:
            continue
        return data_type
    return None


def _parsed(text: str, data_type: pa.DataType, path: str) -> Any:
    try:
        if data_type == pa.int64():
            return int(text)
        return date.fromisoformat(text) if data_type == pa.date32() else datetime.fromisoformat(text)
    except ValueError as error:
        raise SourceError(
            f"{redact_uri(path)}: the version {text!r} is no {type_name(data_type)}, as others are",
            hint="rename the file, or leave it out by a glob in the source's path",
        ) from error
