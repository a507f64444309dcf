"""Runs a FileSource: logs new files, packs them into splits, and reads a split file by file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from volley.columns.dictionaries import as_keys
from volley.connectors.files.columns import FileColumns, folder_texts, folder_values, with_folders, with_included
from volley.connectors.files.inbox import close_inbox, inbox_of, open_inbox
from volley.connectors.files.listing import LoggedFile, check_exists, check_not_empty, list_files, look_up, start_of
from volley.connectors.files.log import FileLog
from volley.connectors.files.notifications import FileNotifications
from volley.connectors.files.opening import ReplacedError, input_files, reading, url_of
from volley.connectors.files.unread import Unread
from volley.contracts.reports import Lag
from volley.contracts.rows import BadRow, PositionedBatch, Seen, SeenColumns, note_lost
from volley.contracts.source import Offset, PayloadDecoder, Reader, SourceContext
from volley.errors import ConfigError, SourceError, VolleyError
from volley.formats.change_options import ChangeOptions
from volley.formats.contract import RESCUED, Contract, contract_of
from volley.formats.files import FORMATS, UNKNOWN, Files, Format, pack
from volley.formats.inferred import Inferred, learn_from
from volley.formats.input_file import Columns, InputFile
from volley.formats.json_seen import Sight
from volley.formats.options import CsvOptions, JsonOptions, kept_in
from volley.formats.rows import strict
from volley.secrets import redact_uri
from volley.storage.paths import filesystem
from volley.storage.remembered import read_or_create
from volley.storage.state_formats import SCHEMA
from volley.task.failpoints import SCHEMA_POINT, reach
from volley.types.arrow import arrow_schema, canonical_schema, inferred_schema, read_schema

__all__ = ["FileReader", "FileSplit", "check_declared", "folders_of", "open_reader", "preview"]

FileSplit = list[tuple[LoggedFile, tuple[int, int]]]
"""Files, each with the number of the part to read and the number of parts."""


@dataclass(frozen=True)
class FileReader(Reader):
    """Reads files in the order in which they were logged."""

    files: Files
    columns: Columns  # all columns that files can have
    content: pa.Schema  # the columns to read of the files
    schema: pa.Schema  # these, and the included ones
    log: FileLog
    parallelism: int  # the number of splits that are read at the same time
    dictionaries: bool  # True: yield columns that are stored with a small dictionary as dictionary arrays
    limit: int | None  # the maximum number of files per epoch; None = all
    # Where the storage tells of new files; None on executors, and where the folder is listed for each epoch.
    notifications: FileNotifications | None = None

    def initial_offset(self) -> Offset:
        return {"files": 0}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        # New files would take the numbers of entries that the log has lost.
        first = self.log.count(start)
        if target is None and (limit is None or first + limit > len(self.log)):
            self._find()
        last = len(self.log) if target is None else self.log.count(target)
        end = last if limit is None else min(last, first + limit)
        return self.log.offset(end) if end > first else start

    def _find(self) -> None:
        """Log new files: those that a queue tells of, or, if a listing is due or there is no queue, all."""
        inbox = inbox_of(self.log.folder)
        messages, paths = inbox.receive() if inbox else ([], [])
        if inbox is None or inbox.is_listing_due:
            # After the messages: what comes meanwhile is told by others.
            self._append(list_files(self.files.url, self.files.storage_options, self.log, self.files.exclude))
        elif paths:
            self._append(look_up(self.files.url, self.files.storage_options, paths, self.files.exclude))
        if inbox is not None:
            if inbox.is_listing_due:
                inbox.note_listing()
            inbox.keep(messages, len(self.log))

    def start(self) -> None:
        if self.notifications is not None:
            open_inbox(self.log.folder, self.notifications)

    def stop(self) -> None:
        close_inbox(self.log.folder)

    @property
    def learns(self) -> bool:
        return self.columns.sight is not None

    def learn(self, seen: Sequence[SeenColumns]) -> None:
        if self.columns.sight is not None:
            self.columns.sight.columns.learn(seen)

    @property
    def acknowledges(self) -> bool:
        return self.notifications is not None

    def committed(self, offset: Offset) -> None:
        if inbox := inbox_of(self.log.folder):
            inbox.committed(self.log.count(offset))

    def __reduce__(self) -> tuple[object, ...]:
        # The queue is the driver's, and may have credentials.
        return FileReader, tuple(getattr(self, name) for name in self.__dataclass_fields__ if name != "notifications")

    def _append(self, listed: Sequence[LoggedFile]) -> None:
        """Log new files; those that were written again as the settings say."""
        policy = self.files.on_replaced
        if policy == "warn":
            self._note_changed(listed)
        elif policy == "fail" and (replaced := self.log.replaced(listed)):
            path = redact_uri(replaced[0].path)
            raise SourceError(
                f"{path} was written again after it was found: it has {replaced[0].size} bytes now",
                hint='on_replaced="read" reads it again, "warn" leaves it; what is new belongs into a new file',
            )
        self.log.append(listed, again=policy == "read")

    def _note_changed(self, listed: Sequence[LoggedFile]) -> None:
        """Warn of files that were written again after they were listed, as they are not looked at again."""
        for before, now in self.log.changed(listed):
            note_lost(
                f"{redact_uri(now.path)} was written again after it was found: it had {before.size} bytes, it has "
                f"{now.size} now; it is not read again",
                "write what is new to a file of a new name; to read all of this one, rename it",
            )

    def splits(self, start: Offset, end: Offset) -> list[FileSplit]:
        files = self.log.files(self.log.count(start), self.log.count(end))
        return pack([(file, file.size, self.files.undivided(file.path) is None) for file in files], self.parallelism)

    @property
    def knows_lag(self) -> bool:
        return True

    def lag(self, offset: Offset) -> Lag:
        return self._unread.lag(offset)

    @cached_property
    def _unread(self) -> Unread:
        return Unread(self.log, redact_uri(self.files.url))

    def size(self, split: FileSplit) -> int | None:
        return sum(logged.size // parts for logged, (_, parts) in split) if self._format.is_safe else None

    def read(self, split: FileSplit) -> Iterator[pa.RecordBatch]:
        reader = self._format.reader
        rows = (reader.encoded_rows if self.dictionaries else None) or reader.rows
        for logged, part in self._with_rows(split):
            with self._reading(logged):
                for file, columns in self._opened(logged, part, self.dictionaries):
                    items = rows(file, self._own(columns), part, self.files.options)
                    yield from columns.add(strict(items, reader.hint))

    def read_tolerant(self, split: FileSplit) -> Iterator[PositionedBatch | BadRow]:
        for logged, part in self._with_rows(split):
            with self._reading(logged):
                for file, columns in self._opened(logged, part):
                    items = self._format.reader.rows(file, self._own(columns), part, self.files.options)
                    yield from columns.add_tolerant(items)

    @contextmanager
    def _reading(self, logged: LoggedFile) -> Iterator[None]:
        """Read a file, or nothing if it was written again since, and is read again for that."""
        try:
            with reading(self.files, logged):
                yield
        except ReplacedError:
            if self.files.on_replaced != "read":
                raise
            note_lost(
                f"{redact_uri(logged.path)} was written again before it was read: what it had then is gone",
                "write what is new to a file of a new name",
            )

    @property
    def _format(self) -> Format:
        return FORMATS[self.files.format]

    def _with_rows(self, split: FileSplit) -> FileSplit:
        """Return the files of a split without empty ones, which are text files without rows."""
        return [(logged, part) for logged, part in split if logged.size or not self._format.is_text]

    def _opened(
        self, logged: LoggedFile, part: tuple[int, int], dictionaries: bool = False
    ) -> Iterator[tuple[InputFile, FileColumns]]:
        """Yield a file, or those in it, each with what sets the columns that it does not have itself."""
        texts = folders_of(self.files, logged.path)
        if texts and self.columns.sight is not None:
            self.columns.sight.see(Seen((name,), "string") for name in texts)
        elif texts:
            self.columns.check_unknown(logged.path, pa.schema({name: pa.string() for name in texts}))
        values = folder_values(logged.path, texts, self.content)
        rows_before = self._format.reader.rows_before if "row" in self.files.include and part[0] else None
        for input_file in input_files(self.files, logged):
            file = replace(input_file, columns=self.columns)
            before = 0 if rows_before is None else rows_before(file, part)
            path = url_of(self.files, file.name)
            yield file, FileColumns(self.content, values, self.files.include, path, before, dictionaries)

    def _own(self, columns: FileColumns) -> pa.Schema:
        """Return the columns to read of a file itself."""
        return self.content if _needs_all(self.files) else columns.of_file([*self.columns.schema])


def preview(files: Files, context: SourceContext) -> pa.Schema | None:
    """Return the declared schema; None if it is inferred.

    Raises:
        ConfigError: If the format can't be read into it.
        SourceError: If the path does not exist, or a bounded source finds no file.
    """
    _check_found(files, _log_of(context))
    return declared(files)


def declared(files: Files) -> pa.Schema | None:
    """Return the schema that a FileSource's settings declare; None if it is inferred."""
    contract = contract_of(files.on_unknown)
    schema = None if contract and contract.evolves else _declared(files)
    return None if schema is None else with_included(_content(files, schema), files.include)


def payload_decoder(files: Files, format: str, schema: pa.Schema) -> PayloadDecoder | None:
    """Return what decodes lines of files that were bad rows; None for a format that has none."""
    added = {*with_included(pa.schema([]), files.include).names, _kept_in(files)}
    columns = pa.schema([field for field in schema if field.name not in added])
    if format == files.format == "json":
        from volley.formats.decoders import payload_values
        from volley.formats.messages import JsonValues

        epoch = files.options.epoch if isinstance(files.options, JsonOptions) else None
        if contract := contract_of(files.on_unknown):
            return replace(payload_values(schema, contract, [*added]), epoch=epoch)
        return JsonValues(columns, str(files.on_unknown), _kept_in(files) or UNKNOWN, epoch)
    if format.startswith("csv ") and isinstance(files.options, CsvOptions):
        from volley.formats.csv_salvage import CsvValues

        return CsvValues(tuple(json.loads(format.removeprefix("csv "))), columns, files.options)
    return None


def open_reader(
    files: Files, context: SourceContext, limit: int | None, notifications: FileNotifications | None = None
) -> FileReader:
    """Return the reader of a FileSource.

    Raises:
        ConfigError: If the format can't be read into the declared schema.
        SourceError: If the path does not exist, a bounded source finds no file, or no file has rows to infer a
            schema from.
    """
    log = _log_of(context)
    _check_found(files, log)
    declared = _declared(files)
    if declared is None:
        declared = _infer_once(files, log, f"{context.state}/schema.arrow")
        FORMATS[files.format].reader.check(declared)
    reader = _reader(files, context, declared, log, limit, notifications)
    if reader.columns.sight is not None and _learns_first(reader):
        reader = _reader(files, context, declared, log, limit, notifications)
    reach(SCHEMA_POINT, len(reader.schema))
    return reader


def check_declared(files: Files, what: str) -> None:
    """Raise ConfigError if columns are inferred from row to row.

    Args:
        what: What needs the same columns in all its rows.
    """
    if (contract := contract_of(files.on_unknown)) and contract.evolves:
        raise ConfigError(f"{what} can't have columns that evolve", hint="declare a schema; or leave schema out")


def _learns_first(reader: FileReader) -> bool:
    """Keep the columns of the first file, unless some are kept; return True if the reader is to be made anew."""
    files, sight = reader.files, reader.columns.sight
    if sight is None or sight.columns.is_kept or not sight.columns.contract.evolves:
        return False
    # The log stays as it is, as for a schema of the first file.
    listed = [*reader.log.files(), *list_files(files.url, files.storage_options, reader.log, files.exclude)]
    first = next((file for file in listed if file.size), None)
    return first is not None and learn_from(reader.read_tolerant([(first, (0, 1))]), sight.columns)


def _reader(
    files: Files,
    context: SourceContext,
    declared: pa.Schema,
    log: FileLog,
    limit: int | None,
    notifications: FileNotifications | None,
) -> FileReader:
    columns = Columns(declared, str(files.on_unknown), _kept_in(files))
    if contract := contract_of(files.on_unknown):
        columns = _inferred(files, context.state, declared, contract)
    content = _content(files, columns.schema)
    all_columns = with_included(content, files.include)
    if _can_prune(files) and context.columns is not None and context.columns <= set(all_columns.names):
        # At least one column: batches without columns lose their number of rows on the way.
        content = pa.schema([field for field in content if field.name in context.columns] or [*content][:1])
    if columns.sight is None:
        content = as_keys(content, context.keys)
    schema = with_included(content, files.include)
    parallelism, dictionaries = context.parallelism, context.dictionaries
    return FileReader(files, columns, content, schema, log, parallelism, dictionaries, limit, notifications)


def _inferred(files: Files, state: str, declared: pa.Schema, contract: Contract) -> Columns:
    """Return the columns that are declared, those that were seen, and those that the format adds."""
    added = files.options.added if isinstance(files.options, ChangeOptions) else [RESCUED]
    reserved = [*with_included(pa.schema([]), files.include).names, *added]
    own = pa.schema([field for field in declared if field.name not in added])
    inferred = Inferred(state, own, contract, reserved).kept()
    schema = FORMATS[files.format].reader.columns(inferred.schema, files.options)
    return Columns(schema, "rescue", _kept_in(files), sight=Sight(inferred))


def _kept_in(files: Files) -> str | None:
    """Return the column that keeps other fields; None if there is none."""
    return kept_in(files.on_unknown, UNKNOWN, files.format)


def _content(files: Files, declared: pa.Schema) -> pa.Schema:
    """Return the columns of files, with the one that keeps other fields."""
    name = _kept_in(files)
    if name is None:
        return declared
    if name in declared.names:
        raise ConfigError(
            f"the files have a column {name!r}, and on_unknown={files.on_unknown!r} adds one",
            hint='on_unknown="warn"',
        )
    return declared.append(pa.field(name, pa.string()))


def _can_prune(files: Files) -> bool:
    return FORMATS[files.format].by_name and not _needs_all(files)


def _needs_all(files: Files) -> bool:
    """Return True if all columns must be read: which fields of a JSON object are unknown shows only beside them."""
    return files.format == "json" and (files.on_unknown == "fail" or _kept_in(files) is not None)


def _log_of(context: SourceContext) -> FileLog:
    return FileLog(f"{context.state}/files")


def _check_found(files: Files, log: FileLog) -> None:
    """Raise SourceError if the path does not exist, or a bounded source finds no file: the path is likely wrong."""
    check_exists(files.url, files.storage_options, log)
    if files.must_exist and not len(log):
        check_not_empty(files.url, files.storage_options, files.exclude)


def _declared(files: Files) -> pa.Schema | None:
    if files.declared is None:
        return None
    schema = canonical_schema(arrow_schema(files.declared))
    reader = FORMATS[files.format].reader
    reader.check(schema)
    return reader.columns(schema, files.options)


def _infer_once(files: Files, log: FileLog, saved: str) -> pa.Schema:
    """Return the schema of the first file with rows, and of all folders; stored, so that restarts use the same."""

    def infer() -> bytes:
        # The log stays as it is: only a reader that knows an offset can tell whether an entry is missing.
        listed = [*log.files(), *list_files(files.url, files.storage_options, log, files.exclude)]
        schemas = (_schema_of(files, file) for file in listed if file.size)
        schema = next((schema for schema in schemas if schema is not None), None)
        if schema is None:
            raise SourceError(
                f"{redact_uri(files.url)} has no rows with columns to infer a schema from",
                hint="declare it: schema=…",
            )
        schema = with_folders(schema, (folders_of(files, file.path) for file in listed))
        text: bytes = schema.serialize().to_pybytes()
        return text

    return read_or_create(saved, SCHEMA, infer, read_schema)


def _schema_of(files: Files, logged: LoggedFile) -> pa.Schema | None:
    try:
        with reading(files, logged):
            infer = FORMATS[files.format].reader.infer
            schemas = (infer(file, files.options) for file in input_files(files, logged) if file.size)
            # JSON objects without fields are rows, but have no columns.
            schema = next(filter(None, schemas), None)
        return None if schema is None else inferred_schema(schema)
    except VolleyError as error:
        if logged.path in error.message:
            raise
        raise error.within(logged.path) from error


def folders_of(files: Files, path: str) -> dict[str, str | None]:
    """Return the columns that the folders of a file name, with their texts."""
    return folder_texts(path, start_of(filesystem(files.url, files.storage_options)[1], path)) if "=" in path else {}
