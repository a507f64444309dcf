"""Files as a source (JSON lines, CSV, Parquet; new files are picked up) and as a sink, on any fsspec storage."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from volley._types import arrow_schema, canonical_schema, check_schema
from volley.connectors._file_formats import FORMATS, Format, canonical
from volley.connectors._file_log import FileLog, LoggedFile
from volley.connectors._file_sink import FileCommitter
from volley.errors import ConfigError, MissingDependencyError, SourceError, near
from volley.sink import Committer, Sink, SinkContext
from volley.source import Offset, SplitSource

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FileSink", "FileSource"]

_SMALL = 32 << 20
_LARGE = 128 << 20
_MAGIC = frozenset("*?[")

FileSplit = list[tuple[LoggedFile, tuple[int, int]]]
"""Files, each with which part of how many is to be read."""


@dataclass(frozen=True)
class FileSource(SplitSource):
    """The rows of files; each file is read once, in the order in which files were found.

    A file has to be complete when it gets its name: write it under a name that begins with ``.`` or ``_`` or ends
    in ``.tmp``, then rename it.

    Args:
        path: A folder, a file or a glob; a local path or an fsspec URL (``s3://bucket/in/*.json``).
        format: ``"json"`` (one object a line; .gz, .bz2, .zst too), ``"csv"`` or ``"parquet"``;
            None = by the path's extension.
        schema: The columns: an Arrow schema, ``"id long, name string"`` or a dict; missing ones are null, others
            ignored. None = inferred from the first file, once for the life of the checkpoint.
        max_files_per_epoch: The most files of one epoch; None = all.
        bounded: True: read what is there when the run starts, then stop; the next run with the same checkpoint
            reads what has come since. False: keep watching for new files.
        options: CSV's ``{"header": False, "delimiter": ";"}``.
        storage_options: For fsspec; never shown.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> FileSource("events/*.json", schema="id long, name string", max_files_per_epoch=10).format
        'json'
    """

    path: str
    format: str | None = None
    schema: Any = None
    max_files_per_epoch: int | None = None
    bounded: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _log: FileLog | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        chosen = self.format or _format_of(self.path)
        if chosen not in FORMATS:
            raise ConfigError(
                f"FileSource format {chosen!r} of {self.path!r} is unknown", hint=near(str(chosen), FORMATS)
            )
        object.__setattr__(self, "format", chosen)
        for option in self.options:
            if option not in FORMATS[chosen].options:
                raise ConfigError(
                    f"{chosen} files have no option {option!r}", hint=near(option, FORMATS[chosen].options)
                )
        if self.max_files_per_epoch is not None and self.max_files_per_epoch < 1:
            raise ConfigError(f"max_files_per_epoch is {self.max_files_per_epoch}", hint="at least 1, or None for all")
        if self.schema is not None:
            object.__setattr__(self, "schema", check_schema(self.schema))

    @property
    def identity(self) -> str:
        return f"files:{self.format}:{self.path}"

    @property
    def limit(self) -> int | None:
        return self.max_files_per_epoch

    def open(self, state: str) -> FileSource:
        opened = replace(self, _log=FileLog(f"{state}/files"))
        if self.schema is not None:
            return replace(opened, schema=canonical_schema(arrow_schema(self.schema)))
        return replace(opened, schema=opened._inferred(f"{state}/schema.arrow"))

    def initial_offset(self) -> Offset:
        return {"files": 0}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        assert self._log is not None
        if target is None:
            self._log.append(self._found())
        last = len(self._log.entries) if target is None else int(target["files"])
        return {"files": last if limit is None else min(last, start["files"] + limit)}

    def splits(self, start: Offset, end: Offset) -> list[FileSplit]:
        assert self._log is not None
        return list(_packed(self._log.entries[start["files"] : end["files"]], self.format == "parquet"))

    def read(self, split: FileSplit) -> Iterator[pa.RecordBatch]:
        for logged, part in split:
            with self._opened(logged) as file:
                yield from self._format.read(file, logged.path, self.schema, part, self.options)

    @property
    def _format(self) -> Format:
        assert self.format is not None
        return FORMATS[self.format]

    def _files(self) -> tuple[Any, str]:
        import fsspec

        try:
            files, root = fsspec.core.url_to_fs(self.path, **self.storage_options)
        except ImportError as error:
            scheme = self.path.partition("://")[0]
            extra = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure"}.get(scheme)
            hint = f'pip install "volley-stream[{extra}]"' if extra else "install the fsspec package for it"
            raise MissingDependencyError(f"files of {scheme}:// can't be read: {error}", hint=hint) from error
        except ValueError as error:
            raise SourceError(f"{self.path}: {error}", hint="check the path's scheme") from error
        return files, root

    def _found(self) -> list[LoggedFile]:
        """All files that are there and complete, oldest first."""
        files, root = self._files()
        try:
            listed = files.glob(root, detail=True) if _MAGIC & set(root) else _below(files, root)
        except OSError as error:
            raise SourceError(f"{self.path} can't be listed: {error}", hint="check path and permissions") from error
        whole = [info for info in listed.values() if info["type"] == "file" and not _is_hidden(info["name"], root)]
        # By time, then name; a file that comes late with an old time still comes, after those already logged.
        whole.sort(key=lambda info: (_modified(info), info["name"]))
        return [LoggedFile(info["name"], info["size"]) for info in whole]

    def _opened(self, logged: LoggedFile) -> Any:
        files, _ = self._files()
        try:
            size = files.size(logged.path)
            if size != logged.size:
                raise SourceError(
                    f"{logged.path} has {size} bytes now, it had {logged.size} when it was found",
                    hint="files must be complete when they get their name, and never change",
                )
            compression = None if self.format == "parquet" else "infer"
            return files.open(logged.path, "rb", compression=compression)
        except OSError as error:
            raise SourceError(
                f"{logged.path} can't be read: {error}", hint="it was there when it was found: was it removed?"
            ) from error

    def _inferred(self, saved: str) -> pa.Schema:
        """The schema of the first file; kept beside the checkpoint, so that a restart has the same one."""
        import fsspec
        import pyarrow as pa

        memory, path = fsspec.core.url_to_fs(saved)
        if memory.exists(path):
            return pa.ipc.read_schema(pa.py_buffer(memory.cat_file(path)))
        assert self._log is not None
        self._log.append(self._found())
        if not self._log.entries:
            raise SourceError(f"{self.path} has no files to infer a schema from", hint="declare it: schema=…")
        first = self._log.entries[0]
        try:
            with self._opened(first) as file:
                schema = canonical(self._format.infer(file, first.path, self.options), first.path)
        except pa.ArrowException as error:
            raise SourceError(
                f"{first.path} is not a {self.format} file: {error}", hint="mend it, or declare the schema"
            ) from error
        memory.makedirs(posixpath.dirname(path), exist_ok=True)
        memory.pipe_file(path, schema.serialize().to_pybytes())
        return schema


def _format_of(path: str) -> str | None:
    name = path
    for packed in (".gz", ".bz2", ".zst"):
        name = name.removesuffix(packed)
    return next((key for key, known in FORMATS.items() if name.endswith(known.extensions)), None)


def _below(files: Any, root: str) -> dict[str, Any]:
    if not files.exists(root):
        raise SourceError(
            f"{root} does not exist", hint="check the path; an empty folder is fine, a missing one is not"
        )
    if files.isfile(root):
        return {root: files.info(root)}
    found: dict[str, Any] = files.find(root, detail=True)
    return found


def _is_hidden(name: str, root: str) -> bool:
    relative = name.removeprefix(root) if not _MAGIC & set(root) else posixpath.basename(name)
    parts = [part for part in relative.split("/") if part]
    return any(part.startswith((".", "_")) for part in parts) or fnmatch.fnmatch(name, "*.tmp") or name.endswith(".crc")


def _modified(info: Mapping[str, Any]) -> float:
    time = next((info[key] for key in ("mtime", "LastModified", "last_modified", "updated") if info.get(key)), 0.0)
    return float(time.timestamp()) if hasattr(time, "timestamp") else float(time) if not isinstance(time, str) else 0.0


def _packed(files: Sequence[LoggedFile], divisible: bool) -> Iterator[FileSplit]:
    """Small files together, a large Parquet file in parts; by size alone: the same files give the same splits."""
    small: FileSplit = []
    size = 0
    for file in files:
        if divisible and file.size > _LARGE:
            parts = -(-file.size // _LARGE)
            yield from ([(file, (part, parts))] for part in range(parts))
            continue
        if small and size + file.size > _SMALL:
            yield small
            small, size = [], 0
        small.append((file, (0, 1)))
        size += file.size
    if small:
        yield small


@dataclass(frozen=True)
class FileSink(Sink):
    """Rows as files in a folder: each epoch's files appear together, under names that a repeated epoch has again.

    Args:
        path: The folder; a local path or an fsspec URL.
        format: ``"parquet"``, ``"json"`` (lines) or ``"csv"``.
        storage_options: For fsspec; never shown.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> FileSink("out", format="json")
        FileSink(path='out', format='json')
    """

    path: str
    format: str = "parquet"
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ConfigError(f"FileSink format {self.format!r} is unknown", hint=near(self.format, FORMATS))

    def open(self, context: SinkContext) -> Committer:
        return FileCommitter(self.path, self.format, dict(self.storage_options), context.schema)
