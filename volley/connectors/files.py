"""Files as a source (JSON lines, CSV, Parquet; new files are picked up) and as a sink, on any fsspec storage."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from volley._checks import count, flag, keep, mapping, one_of, optional, path
from volley._secrets import mask_uri, presentable, show
from volley._types import arrow_schema, canonical_schema, schema_setting
from volley.connectors._file_encoders import ENCODERS, check_columns
from volley.connectors._file_formats import FORMATS, Format, format_of
from volley.connectors._file_listing import check_exists, check_not_empty, list_files
from volley.connectors._file_log import FileLog, LoggedFile
from volley.connectors._file_sink import FileCommitter
from volley.connectors._input_file import InputFile
from volley.connectors._kept import kept
from volley.connectors._paths import absolute, filesystem
from volley.errors import ConfigError, SourceError, VolleyError, near
from volley.sink import Committer, Sink, SinkContext
from volley.source import BadRow, Located, Offset, SplitSource

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FileSink", "FileSource"]

T = TypeVar("T")

_SMALLEST_SPLIT = 4 << 20
_LARGEST_SPLIT = 128 << 20
# What opening a file weighs: 1 ms of CPU on a local disk, some 20 ms of waiting for an object store.
_OPENING = 1 << 20

FileSplit = list[tuple[LoggedFile, tuple[int, int]]]
"""Files, each with which part of how many is to be read."""


@dataclass(frozen=True, repr=False)
class FileSource(SplitSource):
    """The rows of files; each file is read once, in the order in which files were found.

    A file has to be complete when it gets its name: write it under a name that begins with ``.`` or ``_`` or ends
    in ``.tmp``, then rename it.

    Args:
        path: A folder (with all below it), a file or a glob; a local path or an fsspec URL
            (``s3://bucket/in/*.json``). Names that begin with ``.`` or ``_`` or end in ``.tmp`` or ``.crc`` are left
            out, and so are links. A path that is not there is an error, and in a bounded source one that matches no
            file; an empty folder is not.
        format: ``"json"`` (one object a line; .gz, .bz2, .zst too), ``"csv"`` or ``"parquet"``;
            None = by the path's extension.
        schema: The columns: an Arrow schema, ``"id long, name string"`` or a dict; missing ones are null, others
            ignored. None = inferred from the first file with rows, once for a checkpoint's life; better declare it.
            Values of other types are brought to a column's, or are bad rows if they would change; times of 96 bits,
            as older Parquet writers make them, are cut to microseconds.
        max_files_per_epoch: The most files of one epoch; None = all.
        bounded: True: read what is there when the run starts, then stop; the next run with the same checkpoint
            reads what has come since. False: keep watching for new files.
        options: CSV's, for example ``{"header": False, "delimiter": ";", "null_values": ["NA"]}``. A field is null if
            it is empty and has no quotes, or is one of `null_values` (by default none), in columns of any type.
            ``{"newlines_in_values": False}``: no value has a newline, so that large files are read in parts.
        storage_options: For fsspec; secrets in it are never shown.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> FileSource("events/*.json", schema="id long, name string", max_files_per_epoch=10).format
        'json'
    """

    path: str | os.PathLike[str]
    format: str | None = None
    schema: Any = None
    max_files_per_epoch: int | None = None
    bounded: bool = True
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    storage_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    _log: FileLog | None = field(default=None, compare=False)
    _parallelism: int = field(default=1, compare=False)
    _dictionaries: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        keep(self, path=path, bounded=flag, max_files_per_epoch=optional(count), schema=optional(schema_setting))
        keep(self, options=mapping, storage_options=mapping)
        _check_url(self._url)
        chosen = format_of(self._url) if self.format is None else self.format
        if not isinstance(chosen, str) or chosen not in FORMATS:
            raise ConfigError(
                f"FileSource format {chosen!r} of {mask_uri(self._url)!r} is unknown", hint=near(str(chosen), FORMATS)
            )
        object.__setattr__(self, "format", chosen)
        _check_options(chosen, self.options)

    @property
    def identity(self) -> str:
        return f"files:{self.format}:{mask_uri(absolute(self._url))}"

    @property
    def limit(self) -> int | None:
        return self.max_files_per_epoch

    def preview(self, state: str) -> pa.Schema | None:
        replace(self, path=absolute(self._url), _log=FileLog(f"{state}/files"))._check_found()
        return self._declared()

    def open(self, state: str, parallelism: int = 1) -> FileSource:
        opened = replace(self, path=absolute(self._url), _log=FileLog(f"{state}/files"), _parallelism=parallelism)
        opened._check_found()
        schema = self._declared()
        if schema is None:
            schema = opened._inferred(f"{state}/schema.arrow")
            self._format.check(schema)
        return replace(opened, schema=schema)

    def with_dictionaries(self) -> FileSource:
        return replace(self, _dictionaries=True)

    def initial_offset(self) -> Offset:
        return {"files": 0}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        log, first = self._logged(), int(start["files"])
        if target is None and (limit is None or first + limit > len(log.entries)):
            log.append(list_files(self._url, self.storage_options, log.paths))
        last = len(log.entries) if target is None else int(target["files"])
        log.check(max(first, last))
        return {"files": max(first, last if limit is None else min(last, first + limit))}

    def splits(self, start: Offset, end: Offset) -> list[FileSplit]:
        log = self._logged()
        log.check(end["files"])
        return _packed(log.entries[start["files"] : end["files"]], self._divides, self._parallelism)

    def read(self, split: FileSplit) -> Iterator[pa.RecordBatch]:
        encoded = self._format.read_encoded if self._dictionaries else None
        return self._each_file(split, encoded or self._format.read)

    def read_tolerant(self, split: FileSplit) -> Iterator[Located | BadRow]:
        return self._each_file(split, self._format.read_tolerant)

    def _declared(self) -> pa.Schema | None:
        if self.schema is None:
            return None
        schema = canonical_schema(arrow_schema(self.schema))
        self._format.check(schema)
        return schema

    def _divides(self, path: str) -> bool:
        return self._format.divides(path, self.options)

    def _check_found(self) -> None:
        """Raise SourceError if there is nothing to read where there should be: most likely the path is wrong."""
        known = self._logged().paths
        check_exists(self._url, self.storage_options, known)
        if self.bounded and not known:
            check_not_empty(self._url, self.storage_options)

    def _each_file(
        self, split: FileSplit, read: Callable[[InputFile, pa.Schema, tuple[int, int], Mapping[str, Any]], Iterator[T]]
    ) -> Iterator[T]:
        for logged, part in split:
            if logged.size == 0 and self._format.is_text:
                continue
            try:
                yield from read(self._input(logged), self.schema, part, self.options)
            except OSError as error:
                raise _unreadable(logged.path, error) from presentable(error)

    def __repr__(self) -> str:
        return show(replace(self, _log=None, _parallelism=1, _dictionaries=False))

    @property
    def _url(self) -> str:
        return os.fspath(self.path)

    @property
    def _format(self) -> Format:
        assert self.format is not None
        return FORMATS[self.format]

    def _logged(self) -> FileLog:
        assert self._log is not None, "open() comes first"
        return self._log

    def _input(self, logged: LoggedFile) -> InputFile:
        """The file, if it still is what was logged."""
        files, _ = filesystem(self._url, self.storage_options)
        try:
            size = files.size(logged.path)
        except Exception as error:
            raise _unreadable(logged.path, error) from presentable(error)
        if size != logged.size:
            raise SourceError(
                f"{logged.path} has {size} bytes now, it had {logged.size} when it was found",
                hint="files must be complete when they get their name, and never change",
            )

        @contextmanager
        def opened() -> Iterator[Any]:
            import pyarrow as pa

            with files.open(logged.path, "rb") as file:
                kind = self._format.compression(logged.path)
                yield file if kind is None else pa.input_stream(file, compression=kind)

        return InputFile(logged.path, size, opened)

    def _inferred(self, saved: str) -> pa.Schema:
        """The schema of the first file with rows; kept beside the checkpoint, so that a restart has the same one."""
        import pyarrow as pa

        def infer() -> bytes:
            log = self._logged()
            log.append(list_files(self._url, self.storage_options, log.paths))
            found = (self._schema_of(entry) for entry in log.entries if entry.size)
            schema = next((each for each in found if each is not None), None)
            if schema is None:
                raise SourceError(
                    f"{mask_uri(self._url)} has no rows with columns to infer a schema from",
                    hint="declare it: schema=…",
                )
            text: bytes = schema.serialize().to_pybytes()
            return text

        def parse(data: bytes) -> pa.Schema:
            try:
                return pa.ipc.read_schema(pa.py_buffer(data))
            except OSError as error:
                raise ValueError(str(error)) from error

        return kept(saved, infer, parse)

    def _schema_of(self, logged: LoggedFile) -> pa.Schema | None:
        try:
            found = self._format.infer(self._input(logged), self.options)
            # Objects without fields are rows, but say nothing about columns.
            return canonical_schema(found) if found else None
        except OSError as error:
            raise _unreadable(logged.path, error) from presentable(error)
        except VolleyError as error:
            message = error.message if logged.path in error.message else f"{logged.path}: {error.message}"
            raise SourceError(message, hint=error.hint) from error


def _check_url(url: str) -> None:
    """The checkpoint keeps the paths of files; a web address is a path with all its parameters."""
    if re.search("https?://", url) and mask_uri(url) != url:
        raise ConfigError(
            f"path {mask_uri(url)!r} holds a secret, which would go into the checkpoint with it",
            hint="give it by storage_options, or use the storage's own scheme (s3://, abfss://, gs://)",
        )


def _check_options(format: str, options: Mapping[str, Any]) -> None:
    known = FORMATS[format].options
    for option in options:
        if option not in known:
            raise ConfigError(f"{format} files have no option {option!r}", hint=near(option, known))
    delimiter = options.get("delimiter", ",")
    if not isinstance(delimiter, str) or len(delimiter) != 1:
        raise ConfigError(f"delimiter {delimiter!r} is not one character", hint='for example ";" or "\\t"')
    if not isinstance(newlines := options.get("newlines_in_values", True), bool):
        raise ConfigError(f"newlines_in_values {newlines!r} is not True or False", hint="False: no value has a newline")
    nulls = options.get("null_values", [])
    if not isinstance(nulls, list | tuple) or not all(isinstance(text, str) for text in nulls):
        raise ConfigError(f"null_values {nulls!r} is not a list of texts", hint='for example ["NA", "NULL"]')


def _unreadable(path: str, error: Exception) -> SourceError:
    return SourceError(
        f"{mask_uri(path)} can't be read: {mask_uri(str(error))}",
        hint="it was there when it was found: was it removed or cut?",
    )


def _packed(files: Sequence[LoggedFile], divides: Callable[[str], bool], parallelism: int) -> list[FileSplit]:
    """Splits of about the same work, in the files' order: small files together, a large one in parts."""
    total = sum(file.size for file in files)
    size = min(_LARGEST_SPLIT, max(_SMALLEST_SPLIT, total / parallelism))
    pieces = [
        (file, (part, parts))
        for file in files
        for parts in [max(1, round(file.size / size)) if divides(file.path) else 1]
        for part in range(parts)
    ]
    weights = [file.size / parts + _OPENING for file, (_, parts) in pieces]
    # Many small files are spread over all cores, but in no more splits than that: each makes a data file of its own.
    count = max(1, round(total / size), min(parallelism, round(sum(weights) / _SMALLEST_SPLIT)))
    splits: list[FileSplit] = [[] for _ in range(count)]
    before, whole = 0.0, sum(weights)
    for piece, weight in zip(pieces, weights, strict=True):
        middle = before + weight / 2
        splits[min(int(middle / whole * count), count - 1)].append(piece)
        before += weight
    return [split for split in splits if split]


@dataclass(frozen=True, repr=False)
class FileSink(Sink):
    """Rows as files in a folder; an epoch that is repeated after a crash replaces what it left behind.

    An epoch's files get their names one after the other: who reads the folder meanwhile can see some of them.

    Args:
        path: The folder; a local path or an fsspec URL.
        format: ``"parquet"``, ``"json"`` (lines) or ``"csv"``.
        storage_options: For fsspec; secrets in it are never shown.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> FileSink("out", format="json")
        FileSink(path='out', format='json')
    """

    path: str | os.PathLike[str]
    format: str = "parquet"
    storage_options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        keep(self, path=path, storage_options=mapping)
        one_of(ENCODERS)("FileSink format", self.format)

    @property
    def target(self) -> str | None:
        return f"files:{mask_uri(absolute(os.fspath(self.path)))}"

    def check(self, schema: pa.Schema | None) -> None:
        if schema is not None:
            check_columns(self.format, schema)

    def open(self, context: SinkContext) -> Committer:
        self.check(context.schema)
        return FileCommitter(absolute(os.fspath(self.path)), self.format, dict(self.storage_options), context)

    def __repr__(self) -> str:
        return show(self)
