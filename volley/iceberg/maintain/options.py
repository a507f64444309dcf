"""The options of each action of maintenance: what it works on, how, and its limits."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from volley.checks import (
    Duration,
    Instant,
    between,
    count,
    duration_or_zero,
    flag,
    function,
    instant,
    keep,
    names,
    optional,
    path,
    seconds,
)
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import ExecutorTask
from volley.errors import ConfigError
from volley.iceberg.config import IcebergSinkConfig, table_ref
from volley.iceberg.table import TableRef
from volley.plan.expressions import Expr
from volley.storage.paths import absolute

__all__ = [
    "CompactionOptions",
    "DeleteOptions",
    "EraseOptions",
    "ExpiryOptions",
    "ManifestOptions",
    "Runner",
    "StatisticsOptions",
    "takes",
]

Runner = Callable[[Sequence[ExecutorTask]], list[WriteResult]]
_RUNNER = function("Environment().task_runner()")
"""Runs tasks, and returns their results in the same order."""

_MOST_COLUMNS = 16

_Self = TypeVar("_Self")
_Options = TypeVar("_Options")
_Result = TypeVar("_Result")
_Fields = ParamSpec("_Fields")


def takes(
    options: Callable[_Fields, _Options],
) -> Callable[[Callable[[_Self, _Options], _Result]], Callable[Concatenate[_Self, _Fields], _Result]]:
    """Return a decorator for a method with a value of options: its callers give the value's fields as arguments.

    Types, ``inspect.signature`` and ``help`` show the fields, with the descriptions of the value's docstring.
    """

    def decorate(method: Callable[[_Self, _Options], _Result]) -> Callable[Concatenate[_Self, _Fields], _Result]:
        @wraps(method)
        def call(self: _Self, /, *args: _Fields.args, **kwargs: _Fields.kwargs) -> _Result:
            return method(self, options(*args, **kwargs))

        own, fields = inspect.signature(method), inspect.signature(options)
        parameters = [next(iter(own.parameters.values())), *fields.parameters.values()]
        call.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        call.__doc__ = _with_arguments(inspect.getdoc(method) or "", inspect.getdoc(options) or "")
        return call

    return decorate


def _with_arguments(text: str, options: str) -> str:
    """Return a method's docstring with the ``Args:`` of its options before its ``Raises:``."""
    arguments = options.partition("\nArgs:\n")[2].partition("\n\n")[0]
    return text.replace("\nRaises:\n", f"\nArgs:\n{arguments}\n\nRaises:\n", 1)


@dataclass(frozen=True)
class CompactionOptions:
    """What a compaction rewrites, how it arranges the rows, and its limits.

    Args:
        where: A predicate over the rows, as for `TableRows.filter`: only data files that may have such rows are
            rewritten, with all of their rows. None = all.
        target_size: The size of the new files in bytes; None = the table's ``write.target-file-size-bytes``, or
            else 128 MiB.
        small_below: Files below this share of the size are rewritten together with others of their partition.
        deletes_above: Files with at least this share of deleted rows are rewritten, also alone.
        dry_run: Change nothing, and return what would be done.
        small_bytes: Files of at least this size in bytes are not small, whatever the size of the new ones. None =
            `small_below` alone.
        least_files: The fewest small files of a partition that are rewritten; a larger one of them waits for
            others with together as many rows, so that each row is rewritten log2(rows of a full file / rows of
            its first one) times at most, however often this runs, as in a job. None = all small files.
        large_above: Files above this multiple of the size are split.
        old_specs: True rewrites all files of older partition specs, divided by the current one; False = they stay.
        old_schemas: True rewrites all files that were written with an older schema, as far as snapshots tell.
        rewrite_all: True rewrites all files, for example to sort all of them.
        sort_by: Columns by which the rows of each group are sorted, such as ``["country", "at desc"]``, with runs on
            the local disk. True = the table's sort order.
        z_order: Columns that queries filter by, alone or together: rows that are near each other in all of them
            come into the same files.
        group_size: The most bytes of files that are rewritten and replaced together; None = ten times the target.
            A larger one sorts more rows together, and takes more memory: 16 bytes a row, for a z-order also the
            columns that it sorts by.
        max_commits: The most snapshots. Several of them keep what is done if a later one fails.
        max_bytes: The most bytes of files to rewrite: oldest groups first, at least one.
        max_time: The time after which no further group is rewritten: a timedelta, seconds or a text such as
            ``"5m"``. What was written by then is committed.
        run: Runs the work on Spark's executors, as does `Environment.task_runner`; None = in this process.

    Raises:
        ConfigError: If one is wrong, or two contradict each other.
    """

    where: str | Expr | None = None
    target_size: int | None = None
    small_below: float = 0.75
    deletes_above: float = 0.2
    dry_run: bool = False
    _: KW_ONLY
    small_bytes: int | None = None
    least_files: int | None = None
    large_above: float = 1.8
    old_specs: bool = False
    old_schemas: bool = False
    rewrite_all: bool = False
    sort_by: bool | str | Sequence[str] = False
    z_order: Sequence[str] = ()
    group_size: int | None = None
    max_commits: int = 1
    max_bytes: int | None = None
    max_time: Duration | None = None
    run: Runner | None = None

    def __post_init__(self) -> None:
        keep(self, target_size=optional(count), group_size=optional(count), max_bytes=optional(count))
        keep(self, small_bytes=optional(count), least_files=optional(count))
        # A writer closes a file at 95 % of its target: a larger share would rewrite such a file again and again. It
        # keeps files below 110 %.
        keep(self, small_below=between(0, 0.9), large_above=between(1.2, 1000), deletes_above=between(0, 1))
        keep(self, max_commits=count)
        keep(self, old_specs=flag, old_schemas=flag, rewrite_all=flag, max_time=optional(seconds))
        keep(self, sort_by=_sort_columns, z_order=_z_columns, run=optional(_RUNNER), dry_run=flag)
        if self.sort_by and self.z_order:
            raise ConfigError("both sort_by and z_order are given", hint="rows have one order: leave one of them out")


@dataclass(frozen=True)
class DeleteOptions:
    """What a rewrite of delete files does, and its limits.

    Args:
        where: A predicate over the rows, as for `TableRows.filter`: only the deletes of data files that may have
            such rows are merged, and of those that share a delete file with them. None = all.
        convert_equality: True also replaces equality deletes, which Flink writes and pyiceberg can't read, by the
            positions of the rows that they delete. The columns that they compare are read from all data files
            that they apply to.
        dry_run: Change nothing, and return what would be done.
        max_bytes: The most bytes of files to read; at least one data file's deletes are merged.
        max_time: The time after which no further data file is taken: a timedelta, seconds or a text such as
            ``"5m"``. What was merged by then is committed.
        run: Runs the work on Spark's executors, as does `Environment.task_runner`; None = in this process.

    Raises:
        ConfigError: If one is wrong.
    """

    where: str | Expr | None = None
    convert_equality: bool = False
    dry_run: bool = False
    _: KW_ONLY
    max_bytes: int | None = None
    max_time: Duration | None = None
    run: Runner | None = None

    def __post_init__(self) -> None:
        keep(self, convert_equality=flag, max_bytes=optional(count), max_time=optional(seconds))
        keep(self, run=optional(_RUNNER), dry_run=flag)


@dataclass(frozen=True)
class ManifestOptions:
    """How many manifests are rewritten.

    Args:
        dry_run: Change nothing, and return what would be done.
        max_bytes: The most bytes of manifests to rewrite: of those whose partitions overlap together all, or none,
            and the first of such groups in any case. None = all.

    Raises:
        ConfigError: If one is wrong.
    """

    dry_run: bool = False
    _: KW_ONLY
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        keep(self, max_bytes=optional(count), dry_run=flag)


@dataclass(frozen=True)
class StatisticsOptions:
    """Which columns have their distinct values counted.

    Args:
        columns: The columns; None = all that are not nested.
        dry_run: Read nothing, and return how much would be read.
        run: Runs the work on Spark's executors, as does `Environment.task_runner`; None = in this process.

    Raises:
        ConfigError: If one is wrong.
    """

    columns: Sequence[str] | None = None
    dry_run: bool = False
    _: KW_ONLY
    run: Runner | None = None

    def __post_init__(self) -> None:
        keep(self, columns=optional(names), run=optional(_RUNNER), dry_run=flag)


@dataclass(frozen=True)
class EraseOptions:
    """Which rows are erased, from where besides the table, and what may go with them.

    Args:
        keys: The rows' keys: a sequence of rows of the key columns, such as ``[{"id": 7}]``, an Arrow table or a data
            frame. Dates, times and UUIDs may be texts. Any columns that are not nested can be keys; a key erases all
            rows that are equal in them.
        proof: True reads all files of the table again at the end, those that belong to no snapshot, too, and raises an
            error that names each which still has one of the rows.
        dry_run: Change nothing, and return what would be done.
        letters: The tables of dead letters of the jobs that write to the table, as `TableRef` or a sink's config, such
            as ``config.dead_letter_table``: a letter goes if the text of each value of a key stands in it as a word.
        checkpoints: The folders of the checkpoints of jobs that read the rows, and of logs of their webhooks: the proof
            reads them too, and names each file in which all values of a key stand in one row, in whatever columns. They
            are not changed. A file that can't be read is named as well.
        drop_tags: True drops tags of snapshots that have the rows; False = such a tag is an error, and nothing changes.
        orphans_older_than: Files that belong to no snapshot and have such rows are deleted from this age on; a running
            job may still commit younger ones. Without such a job, ``"0s"``.
        outside: Delete files outside of the table's own folders too, such as files that were added to the table
            where they were. Make sure that no other table or job needs them.
        run: Runs the work on Spark's executors, as does `Environment.task_runner`; None = in this process.

    Raises:
        ConfigError: If one is wrong.
    """

    keys: Any
    proof: bool = True
    dry_run: bool = False
    _: KW_ONLY
    letters: Sequence[TableRef | IcebergSinkConfig] = ()
    checkpoints: Sequence[str] = ()
    drop_tags: bool = False
    orphans_older_than: Duration = timedelta(days=3)
    outside: bool = False
    run: Runner | None = None

    def __post_init__(self) -> None:
        keep(self, keys=_keys, proof=flag, dry_run=flag, letters=_tables, drop_tags=flag, outside=flag)
        keep(self, orphans_older_than=duration_or_zero, run=optional(_RUNNER), checkpoints=_folders)
        if self.checkpoints and not (self.proof or self.dry_run):
            raise ConfigError("checkpoints are given, and proof=False", hint="the proof reads them: leave proof out")


@dataclass(frozen=True)
class ExpiryOptions:
    """Which snapshots expire.

    Args:
        older_than: Snapshots before this time expire: a datetime or a text such as ``"2026-11-01"``, or an age (a
            timedelta, seconds, or a text such as ``"7d"``); None = the table's
            ``history.expire.max-snapshot-age-ms``, five days by default.
        retain_last: The number of snapshots that each branch keeps even if they are older; None = the table's
            ``history.expire.min-snapshots-to-keep``, one by default.
        snapshot_ids: Expire exactly these snapshots, instead of those that are old; none if it is empty.
        max_snapshots: The most old snapshots that expire, oldest first; the next call goes on. None = all.
        outside: Delete files outside of the table's own folders too, such as files that were added to the table
            where they were. Make sure that no other table or job needs them.
        dry_run: Change nothing, and return what would be done.

    Raises:
        ConfigError: If one is wrong, or two contradict each other.
    """

    older_than: Instant | Duration | None = None
    retain_last: int | None = None
    _: KW_ONLY
    snapshot_ids: Collection[int] | None = None
    max_snapshots: int | None = None
    outside: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        keep(self, snapshot_ids=optional(_ids))
        by_age = (self.older_than, self.retain_last, self.max_snapshots)
        if self.snapshot_ids is not None and any(setting is not None for setting in by_age):
            raise ConfigError("both snapshot_ids and an age or a limit are given", hint="expire one, then the other")
        keep(self, older_than=optional(_time_or_age), retain_last=optional(count), max_snapshots=optional(count))
        keep(self, dry_run=flag, outside=flag)

    def before(self, now: datetime) -> datetime | None:
        """Return the time before which snapshots expire; None = the table says it."""
        if isinstance(self.older_than, timedelta):
            return now - self.older_than
        assert self.older_than is None or isinstance(self.older_than, datetime)
        return self.older_than


def _sort_columns(name: str, value: Any) -> bool | tuple[str, ...]:
    return value if isinstance(value, bool) else names(name, value)


def _z_columns(name: str, value: Any) -> tuple[str, ...]:
    columns = names(name, value)
    if columns and not 2 <= len(set(columns)) == len(columns) <= _MOST_COLUMNS:
        raise ConfigError(
            f"{name} has the columns {', '.join(columns)}",
            hint=f"two to {_MOST_COLUMNS} different columns; rows are sorted by one with sort_by",
        )
    return columns


def _ids(name: str, value: Any) -> frozenset[int]:
    if not isinstance(value, Collection) or not all(isinstance(snapshot_id, int) for snapshot_id in value):
        raise ConfigError(f"{name} are {value!r}", hint="a list of the ids of snapshots")
    return frozenset(value)


def _time_or_age(name: str, value: Any) -> datetime | timedelta:
    is_time = isinstance(value, datetime) or (isinstance(value, str) and re.match(r"\d{4}-", value))
    return instant(name, value) if is_time else duration_or_zero(name, value)


def _keys(name: str, value: Any) -> Any:
    if hasattr(value, "__arrow_c_stream__"):
        return value
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if not is_sequence or not value or not all(isinstance(key, Mapping) and key for key in value):
        raise ConfigError(f"{name} are {value!r}", hint='rows of the key columns: [{"id": 7}], or an Arrow table')
    return tuple(dict(key) for key in value)


def _tables(name: str, value: Any) -> tuple[TableRef, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{name} are {value!r}", hint="a list of tables, [config.dead_letter_table]")
    return tuple(map(table_ref, value))


def _folders(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{name} are {value!r}", hint='a list of folders, ["/data/checkpoints/orders"]')
    return tuple(absolute(path(name, each)) for each in value)
