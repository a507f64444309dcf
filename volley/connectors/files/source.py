"""FileSource: reads JSON, CSV, Parquet, ORC or Avro files on any fsspec storage, and new files as they arrive."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import date
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from volley.checks import count, flag, keep, mapping, names, of_type, one_of, optional, path
from volley.connectors.files.notifications import FileNotifications
from volley.contracts.datasets import Dataset
from volley.contracts.dimension import Dimension, DimensionReader
from volley.contracts.extracts import Extracts, ExtractSource
from volley.contracts.source import PayloadDecoder, Reader, SourceContext
from volley.errors import ConfigError, brief_methods, near
from volley.formats.change_options import CHANGES, ChangeOptions, check_options
from volley.formats.contract import INFER, Contract, contract_of
from volley.formats.files import FORMATS, INCLUDE, UNKNOWN, FileFormat, Files, OnReplaced, format_of
from volley.formats.options import (
    CsvOptions,
    NoOptions,
    Policy,
    fate_of_unknown,
    kept_in,
    on_unknown,
    policy_of,
    value_schema,
)
from volley.secrets import redact_uri, redacted_html, redacted_repr
from volley.storage.paths import absolute
from volley.types.schemas import schema_setting

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.types.names import SchemaLike

__all__ = ["FileDimension", "FileSource"]

_FEW_FILES, _FEW_BYTES = 100, 1 << 20


@dataclass(frozen=True)
class _Options(ChangeOptions, CsvOptions):
    """The options of all formats, for documents."""


@brief_methods
@dataclass(frozen=True, repr=False)
class FileSource(ExtractSource):
    """Reads files, each once, oldest first within a listing.

    A file must be complete when it gets its final name: write it under a name that starts with ``.`` or ``_`` or ends
    in ``.tmp``, then rename it. So do HDFS, browsers and most programs that copy files, whose endings are left out too.

    Args:
        path: A folder (with its subfolders), a file or a glob; a local path or an fsspec URL
            (``s3://bucket/in/*.json``). Left out are links, names that start with ``.`` or ``_`` and names of files
            that are still copied (``.tmp``, ``.part``, ``._COPYING_``, …). A missing path is an error, and in a
            bounded source one where there is no file yet.
        format: ``"json"`` (one object per line, or one array of objects), ``"csv"``, ``"parquet"``, ``"orc"`` or
            ``"avro"`` (needs fastavro, of the extra `kafka`); None = by the path's extension. ``"debezium"``,
            ``"maxwell"``, ``"canal"``, ``"dms"``, ``"airbyte"``, ``"olake"`` and ``"changes"``: changes of rows, as of
            `KafkaSource`, one JSON object per line; they need a schema. Files of text may be compressed: .gz, .bz2,
            .zst, .xz, .zip (all of its members).
        schema: The columns: a text such as ``"id long, name string"``, a dict of names and types, a dataclass, a
            pydantic model or a `pyarrow.Schema`. Missing columns are null; a folder below the path such as
            ``day=2026-01-01`` gives the column `day` of its files a value, as in Hive. None = infer it from the names
            of such folders and the first file with rows, once for a checkpoint's life; declaring it is safer.
            ``"infer"`` = of JSON, from all rows, as ``on_unknown="evolve"`` does beside declared columns; of Debezium,
            from the schemas that its messages carry. Columns that no step uses are not read (CSV: they are), so that a
            bad value in them is no fault; with a dead letter all are read. Values of other types are cast; a value that
            the cast would change makes its row a bad row. 96-bit timestamps of older Parquet writers are truncated to
            microseconds.
        max_files_per_epoch: The maximum number of files per epoch; None = all.
        bounded: True: read the files that exist when the run starts, then stop; the next run with the same checkpoint
            reads the files that were added since. False: keep watching for new files.
        exclude: Patterns of names to leave out, of files and of folders below the path, such as ``"*.bak"``; ``*`` and
            ``?`` stand for any characters.
        on_replaced: What to do with a file that was written again after it was found, which its size or the time of
            its last change tells: ``"warn"`` (the default) leaves it and warns of it, as far as the time is later than
            that of all files before; ``"read"`` reads it again, as a new file; ``"fail"`` is an error that names it.
        notifications: Where the storage tells of new files: `SqsQueue`, `PubSubSubscription` or `AzureQueue`. The
            folder is listed when the job first starts, and every so often after that. None = it is listed for each
            epoch.
        options: Options of the format. Of CSV: ``header``, ``column_names``, ``skip_rows``, ``delimiter``, ``quote``,
            ``escape``, ``null_values``, ``decimal_point``, ``date_formats`` and ``newlines_in_values``, as in
            ``{"delimiter": ";", "decimal_point": ",", "null_values": ["NA"]}``. A field is null if it is empty without
            quotes, or one of `null_values` (default: none), in columns of any type.
            ``{"newlines_in_values": False}`` declares that no value has a newline: large files are read in parts.
            Of JSON and CSV: ``{"encoding": "latin-1"}``, one of Python's encodings; without it files are in UTF-8; and
            ``{"epoch": "ms"}``, the unit of numbers in columns of timestamps. Of changes: those of `KafkaSource`.
        include: What to add to each row: ``"file"`` for its file in the column ``file_path``, ``"row"`` for the number
            of the row in that file, from 1, in the column ``file_row``; bad rows count. With ``"row"`` a large file is
            read by one task, unless it is Parquet.
        storage_options: Options of the fsspec file system; secrets in them are never shown.
        on_unknown: What to do with fields that the schema, declared or inferred, lacks: ``"warn"`` (the default) leaves
            them out and warns once of each, with the file; ``"keep"`` keeps those of JSON as JSON in the column
            ``file_unknown``; ``"rescue"`` keeps them in ``rescued``, with values that don't fit their column, which is
            then null; ``"evolve"`` makes fields of JSON columns, and rescues values that don't fit; or a `Contract`;
            ``"fail"`` makes a JSON row that has one a bad row, and is an error for a file of another format;
            ``"drop"`` leaves them out. A JSON row without any field of the schema is a bad row, unless they are kept;
            a file of another format without any is an error.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> FileSource("events/*.json", schema="id long, name string", max_files_per_epoch=10).format
        'json'
    """

    worker_modules: ClassVar[tuple[str, ...]] = ("volley.connectors.files.reader",)

    path: str | os.PathLike[str]
    format: FileFormat | None = None
    schema: SchemaLike | None = None
    max_files_per_epoch: int | None = None
    bounded: bool = True
    options: Mapping[str, Any] = field(default_factory=dict, hash=False, metadata={"keys": _Options})
    include: Sequence[str] = ()
    storage_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    on_unknown: Policy = field(default="warn", metadata={"keys": Contract})
    exclude: Sequence[str] = ()
    on_replaced: OnReplaced = "warn"
    notifications: FileNotifications | None = None

    def __post_init__(self) -> None:
        keep(self, path=path, bounded=flag, max_files_per_epoch=optional(count))
        keep(self, options=mapping, storage_options=mapping, on_unknown=on_unknown)
        keep(self, notifications=optional(of_type(FileNotifications, 'SqsQueue("https://sqs.…")')))
        keep(self, exclude=names, on_replaced=one_of(get_args(OnReplaced)))
        _check_url(self._url)
        name: Any = format_of(self._url) if self.format is None else self.format
        if not isinstance(name, str) or name not in FORMATS:
            raise ConfigError(
                f"FileSource format {name!r} of {redact_uri(self._url)!r} is unknown", hint=near(str(name), FORMATS)
            )
        object.__setattr__(self, "format", name)
        self._keep_schema(name)
        keep(self, include=_include)
        _options(name, self.options)
        if name in CHANGES:
            schema = () if self.schema == INFER else value_schema(name, self.schema)
            check_options(name, schema, self.options, self.on_unknown)

    def _keep_schema(self, name: str) -> None:
        schema, policy = policy_of(self.schema, self.on_unknown, name)
        object.__setattr__(self, "on_unknown", policy)
        if schema is not None and self.schema != INFER:
            keep(self, schema=schema_setting)
        if kept_in(policy, UNKNOWN, name) is not None and name != "json":
            setting = "schema='infer'" if self.schema == INFER else f"on_unknown={policy!r}"
            hint = "leave it out: the first file tells the columns" if self.schema == INFER else "declare the columns"
            raise ConfigError(f"{setting} is for JSON, not for {name}", hint=hint)

    @property
    def identity(self) -> str:
        return f"files:{self.format}:{redact_uri(absolute(self._url))}"

    def datasets(self) -> Sequence[Dataset]:
        return [Dataset.of_path(self._url)]

    def is_small(self) -> bool:
        # A look at another storage takes longer; a pattern is no local path.
        with suppress(OSError):
            return self.bounded and FORMATS[str(self.format)].is_safe and _are_few(self._url)
        return False

    def preview(self, context: SourceContext) -> pa.Schema | None:
        from volley.connectors.files.reader import preview

        return preview(self._files(), context)

    def declared(self) -> pa.Schema | None:
        from volley.connectors.files.reader import declared

        return declared(self._files())

    def open(self, context: SourceContext) -> Reader:
        from volley.connectors.files.reader import open_reader

        return open_reader(self._files(), context, self.max_files_per_epoch, self.notifications)

    def extracts(self, context: SourceContext, version: str | int | date | None) -> Extracts:
        from volley.connectors.files.extracts import FileExtracts, FileStates
        from volley.connectors.files.reader import check_declared, open_reader

        check_declared(self._files(), "extracts that are compared")

        # Extracts that were read may be archived.
        reader = open_reader(replace(self._files(), must_exist=False), context, None)
        return (
            FileStates(reader) if version is None else FileExtracts(reader, version, f"{context.state}/version.arrow")
        )

    def explain(self, context: SourceContext) -> str:
        unknown = fate_of_unknown(self.on_unknown, UNKNOWN, by_row=self.format == "json")
        return f"{unknown}; {_tasks(self._files(), self._url)}"

    def payload_decoder(self, format: str, schema: pa.Schema) -> PayloadDecoder | None:
        from volley.connectors.files.reader import payload_decoder

        return payload_decoder(self._files(), format, schema)

    __repr__ = redacted_repr
    _repr_html_ = redacted_html

    @property
    def _url(self) -> str:
        return os.fspath(self.path)

    @property
    def _declared(self) -> Any:
        """The columns that are declared; None = those of the first file are."""
        contract = contract_of(self.on_unknown)
        is_open = self.schema is None and contract is not None and contract.new_columns == "evolve"
        return () if is_open else policy_of(self.schema, self.on_unknown)[0]

    def _files(self) -> Files:
        assert self.format is not None
        return Files(
            absolute(self._url, globs=True),
            self.format,
            _options(self.format, self.options),
            self.storage_options,
            self._declared,
            must_exist=self.bounded,
            include=tuple(self.include),
            on_unknown=self.on_unknown,
            exclude=tuple(self.exclude),
            on_replaced=self.on_replaced,
        )


@dataclass(frozen=True, repr=False)
class FileDimension(Dimension):
    """The files of a FileSource that are there: a table that may change while a job runs."""

    source: FileSource

    @property
    def identity(self) -> str:
        return self.source.identity

    def declared(self) -> pa.Schema | None:
        return self.source.declared()

    def datasets(self) -> Sequence[Dataset]:
        return self.source.datasets()

    def open(self) -> DimensionReader:
        from volley.connectors.files.table import FileDimensionReader

        return FileDimensionReader(replace(self.source, bounded=True)._files())

    def __repr__(self) -> str:
        return repr(self.source)


def _are_few(path: str) -> bool:
    """Return True for a file of less than a megabyte, or a folder of such files only, together as small."""
    if os.path.isfile(path):
        return os.path.getsize(path) <= _FEW_BYTES
    with os.scandir(path) as entries:
        files = list(islice(entries, _FEW_FILES + 1))
    is_flat = len(files) <= _FEW_FILES and all(file.is_file() for file in files)
    return is_flat and sum(file.stat().st_size for file in files) <= _FEW_BYTES


def _tasks(files: Files, url: str) -> str:
    """Return how tasks share large files, as a clause."""
    if reason := files.undivided(url):
        return f"one task reads a file, however large it is: {reason}"
    whole = FORMATS[files.format].whole
    return "several tasks read a large file in parts" + (f"; one task each: {whole}" if whole else "")


def _check_url(url: str) -> None:
    """Raise ConfigError for http(s) URLs with secrets: the path, query string included, is stored in the checkpoint."""
    # A long name in the path may look like a token.
    address = re.sub(r"(https?://[^/?#]*)[^?#]*", r"\1", url)
    if re.search("https?://", url) and redact_uri(address) != address:
        raise ConfigError(
            f"path {redact_uri(url)!r} holds a secret, which would go into the checkpoint with it",
            hint="give it by storage_options, or use the storage's own scheme (s3://, abfss://, gs://)",
        )


def _options(format: str, options: Mapping[str, Any]) -> NoOptions:
    """Return the options of a format as its own value, which checks them."""
    known = [option.name for option in fields(FORMATS[format].options)]
    for option in options:
        if option not in known:
            raise ConfigError(f"{format} files have no option {option!r}", hint=near(option, known))
    return FORMATS[format].options(**options)


def _include(name: str, value: Any) -> tuple[str, ...]:
    include = names(name, value)
    for part in include:
        one_of(INCLUDE)(name, part)
    return tuple(part for part in INCLUDE if part in include)
