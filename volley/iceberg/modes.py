"""What a sink does with its table, as plain values: commit modes, checks of schema evolution, maintenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

from volley.checks import Duration, between, count, duration, flag, keep, names, one_of, optional, size, text
from volley.errors import ConfigError, near
from volley.html_table import settings_html
from volley.iceberg.keyed_modes import History, KeyedMode, Strategy, names_or_expressions
from volley.plan.expressions import Expr

__all__ = [
    "Append",
    "CommitMode",
    "EvolutionMode",
    "History",
    "KeyedMode",
    "Maintenance",
    "Overwrite",
    "Strategy",
    "Upsert",
    "check_evolution",
    "commit_mode",
]

EvolutionMode = Literal["strict", "add_columns", "full"]


@dataclass(frozen=True)
class Append:
    """Add the rows of each epoch to the table.

    Example:
        >>> Append()
        Append()
    """

    _repr_html_ = settings_html


@dataclass(frozen=True, repr=False)
class Overwrite:
    """Replace rows of the table by the rows of each run over bounded sources; a run without rows changes nothing.

    ``Overwrite()`` replaces the whole table, `Overwrite.dynamic` the partitions that the run has rows for,
    `Overwrite.partitions` the named partitions. What stands there when the first rows of a run come is replaced; the
    run's later epochs add to it, also after a death. A run ends when it has read what its sources had, without a
    failure; the next one replaces its rows. What others write meanwhile stays.

    A source without an end has no runs: each of its epochs replaces the rows of the epoch before.

    Example:
        >>> Overwrite.partitions({"country": "NO"}, {"country": "SE"})
        Overwrite.partitions({'country': 'NO'}, {'country': 'SE'})
    """

    by_partition: bool = False
    named: tuple[tuple[tuple[str, object], ...], ...] = ()

    @classmethod
    def dynamic(cls) -> Overwrite:
        """Replace the whole of each partition that the run has rows for; other partitions stay."""
        return cls(by_partition=True)

    @classmethod
    def partitions(cls, *partitions: Mapping[str, object]) -> Overwrite:
        """Replace the named partitions; a row of any other partition stops the job before the commit.

        Args:
            partitions: Dicts of partition fields (or of columns with the transform identity) and their values. A
                field that is left out may have any value.

        Raises:
            ConfigError: If no partition is given, or one has no field.
        """
        if not partitions or not all(map(_is_partition, partitions)):
            raise ConfigError(
                f"partitions are {partitions!r}", hint='name one or more: Overwrite.partitions({"country": "NO"})'
            )
        return cls(True, tuple(tuple(partition.items()) for partition in partitions))

    def __repr__(self) -> str:
        if self.named:
            return f"Overwrite.partitions({', '.join(repr(dict(partition)) for partition in self.named)})"
        return "Overwrite.dynamic()" if self.by_partition else "Overwrite()"

    _repr_html_ = settings_html


@dataclass(frozen=True)
class Upsert(KeyedMode):
    """Replace the table's rows that have the same keys as a row of the epoch, add the others.

    Of several rows of an epoch with the same keys, the last one wins; later epochs replace rows of earlier ones. So
    `order_by` orders rows within an epoch only: a row that comes in a later epoch replaces the stored one whatever
    their order, and brings back a row that was deleted. Where changes come out of order, the result depends on how they
    fall into epochs; `sequence` orders them all.

    Args:
        key_fields: The columns that identify a row; stored as a tuple. A null in one is an error. None = the stream's
            own, such as the primary key of a `PostgresSource`.
        order_by: The column that orders an epoch's rows of one key: the highest value wins, nulls are lowest. It does
            not order rows of different epochs. None = the stream's own; without one, the last to arrive wins.
        op_field: A column of the stream with the operation: ``"d"`` or ``"delete"`` (in any case), or True, deletes
            the row with these keys; any other value writes it, but ``"update_before"`` with a sequence, which leaves
            it out. With ``write_order=False``, ``"t"`` or ``"truncate"``
            deletes every row that comes before it. The column itself is not written. None = the stream's own; without
            one, every row is written.
        strategy: ``"merge_on_read"`` writes position-delete files, ``"copy_on_write"`` rewrites the data files;
            ``"auto"`` rewrites a file if a large part of it is replaced. Tables of format version 1 have no delete
            files: their data files are always rewritten.
        write_order: False = the column of `order_by`, a whole number, is not written. It can then be that of
            `op_field`: a row is deleted before another one of its key comes, in whatever order they arrive.
        sequence: A column, or several, that tell which of two rows of a key is the later one, in whatever order and
            epoch they come: a row replaces the stored one only if its sequence is greater. A deletion beats a row of
            the same sequence; of two such rows, the one with the greater values stays, column by column. So the table
            does not depend on how rows fall into epochs, nor on rows that come twice. The columns are written; a null
            in one is an error. An expression in place of a column, such as ``coalesce(col("updated_at"),
            col("created_at"))``, is computed for each row and written as a column of the table, ``_volley_sequence``,
            or of the name that ``.alias(…)`` gives it. Not together with `order_by`.
        tombstones: How long a deletion is remembered under `sequence`, such as ``"7d"``: a row that is older than the
            deletion, but comes after that time, is taken for a new one. None = for ever. Deletions are remembered in a
            branch of the table, ``volley-tombstones-main`` for main, which no query of the table reads.
        unchanged_field: A column of the stream with a list of columns' names: the row does not have their values, as
            they have not changed; they are taken from the row that it replaces, or, if the row numbered just before it
            is a deletion, from the row that this one deletes: its key has changed. Without a `sequence`, a row whose
            values are nowhere is an error. The column itself is not written. None = the stream's own, if it has one.
        ignore_nulls: True = a null keeps the value of the row that it replaces, in all columns, or in those of a list.
        update_columns: The columns that are replaced if the key is there already; the row of a new key is written
            whole. None = all. Not together with `sequence`: which row came first would have to be known for ever.

    With `unchanged_field` or `ignore_nulls`, rows may be *incomplete*. Under `sequence`, each column has the value of
    the greatest sequence that had one, in whatever order the rows come; of two values of the same sequence, the greater
    one. A column that no row has a value of is null. The table gets the column ``_volley_older`` then, which tells the
    sequences of values that are older than their row.

    Raises:
        ConfigError: If `key_fields` is empty, or one is given twice; if `op_field` or `unchanged_field` is a key or
            `order_by`; if the strategy is unknown; if settings exclude each other.

    Example:
        >>> Upsert(["id", "event_date"]).key_fields
        ('id', 'event_date')
        >>> Upsert().keys  # the stream of a PostgresSource tells them
        ()
    """

    key_fields: Sequence[str] | None = None
    order_by: str | None = None
    op_field: str | None = None
    strategy: Strategy = "auto"
    write_order: bool = True
    unchanged_field: str | None = None
    sequence: str | Expr | Sequence[str | Expr] | None = None
    tombstones: Duration | None = None
    ignore_nulls: bool | str | Sequence[str] = False
    update_columns: str | Sequence[str] | None = None

    @classmethod
    def of_changes(
        cls, key_fields: Sequence[str] | None = None, strategy: Strategy = "auto", *, sequence: bool = False
    ) -> Upsert:
        """Return the mode for the rows of a `PostgresSource`: ordered by ``_seq``, with the operation in ``_op``.

        The columns that tell what to do are not written. Values that the stream leaves out are those of the replaced
        row.

        Args:
            key_fields: The columns of the table's primary key, or of its replica identity; None = what the source
                tells.
            strategy: As above.
            sequence: True for a source with ``sequence=True``: its rows are settled by ``_lsn`` and ``_change``.
        """
        if sequence:
            order = ("_lsn", "_change")
            return cls(key_fields, None, "_op", strategy, unchanged_field="_unchanged", sequence=order)
        return cls(key_fields, "_seq", "_op", strategy, write_order=False, unchanged_field="_unchanged")

    def __post_init__(self) -> None:
        flag("write_order", self.write_order)
        keep(self, key_fields=optional(names))
        keys = self.keys
        if self.key_fields == () or len(set(keys)) < len(keys):
            raise ConfigError(f"key_fields are {keys!r}", hint='name each key column once: Upsert(["id"])')
        for name in ("order_by", "op_field", "unchanged_field"):
            column = getattr(self, name)
            if column is not None and (not isinstance(column, str) or not column):
                raise ConfigError(f"{name} {column!r} is not a column name", hint="the name of a column, or None")
        for name, others in (
            ("op_field", (*keys, self.order_by) if self.write_order else keys),
            ("unchanged_field", (*keys, self.order_by, self.op_field)),
        ):
            column = getattr(self, name)
            if column is not None and column in others:
                raise ConfigError(
                    f"{name} {column!r} is a key, order_by or op_field too", hint="it is not written: name it once"
                )
        one_of(get_args(Strategy))("strategy", self.strategy)
        self._check_sequence()
        self._check_partial()

    def _check_partial(self) -> None:
        keep(self, ignore_nulls=_flag_or_names, update_columns=optional(names))
        if self.unchanged_field is not None and self.is_whole_if_new:
            raise ConfigError(
                "unchanged_field and ignore_nulls or update_columns are both given",
                hint="name one way in which rows are incomplete",
            )
        if self.update_columns is not None and self.sequence is not None:
            raise ConfigError(
                "update_columns and sequence are both given: the first row of a key would count whole, and which one "
                "that is may change with each row that comes late",
                hint="ignore_nulls with a sequence: leave null what a row does not set",
            )
        for name in ("ignore_nulls", "update_columns"):
            listed: Any = getattr(self, name)
            if listed == () or (listed not in (None, True, False) and {*self.keys, self.op_field}.intersection(listed)):
                raise ConfigError(f"{name} is {listed!r}", hint="name columns that are no key and no op_field")

    def _check_sequence(self) -> None:
        keep(self, sequence=optional(names_or_expressions), tombstones=optional(duration))
        if self.sequence is None:
            if self.tombstones is not None:
                raise ConfigError("tombstones are kept with a sequence only", hint='name one: sequence="updated_at"')
            return
        if self.order_by is not None:
            raise ConfigError("sequence and order_by are both given", hint="leave order_by out")
        taken = {*self.keys, self.op_field, self.unchanged_field}.intersection(self.sequence_fields)
        if taken or len(set(self.sequence_fields)) < len(self.sequence_fields) or not self.sequence_fields:
            raise ConfigError(
                f"sequence is {self.sequence_fields!r}", hint="name columns that are no key and no op_field, each once"
            )

    _repr_html_ = settings_html


CommitMode = Append | Overwrite | Upsert | History


def _flag_or_names(name: str, value: Any) -> bool | tuple[str, ...]:
    return value if isinstance(value, bool) else names(name, value)


def _is_partition(partition: object) -> bool:
    return isinstance(partition, Mapping) and bool(partition) and all(isinstance(name, str) for name in partition)


_WITH_SETTINGS = {"upsert": 'Upsert(["id"])', "history": 'History(["id"], sequence="updated_at")'}


def commit_mode(value: CommitMode | str) -> CommitMode:
    """Return the mode of a name, or the mode itself.

    Raises:
        ConfigError: If the name is unknown, or its mode needs settings.

    Example:
        >>> commit_mode("append")
        Append()
    """
    if isinstance(value, CommitMode):
        return value
    if isinstance(value, str) and value in _WITH_SETTINGS:
        raise ConfigError(f"commit_mode {value!r} needs key fields", hint=_WITH_SETTINGS[value])
    named: dict[str, CommitMode] = {"append": Append(), "overwrite": Overwrite()}
    if not isinstance(value, str) or value not in named:
        raise ConfigError(f"commit_mode {value!r} is unknown", hint=near(str(value), [*named, *_WITH_SETTINGS]))
    return named[value]


def check_evolution(mode: str, renames: Mapping[str, str], drops: Sequence[str]) -> None:
    """Raise ConfigError unless settings of a schema evolution can be applied, and applied again after a restart."""
    one_of(get_args(EvolutionMode))("schema_evolution", mode)
    if mode != "full" and (renames or drops):
        raise ConfigError(
            f"renames and drops are not for schema_evolution {mode!r}", hint='with_schema_evolution("full", …)'
        )
    for column in (*renames, *renames.values(), *drops):
        if not isinstance(column, str) or not column:
            raise ConfigError(f"renames or drops have {column!r}", hint="the dotted name of a column")
    for path, name in renames.items():
        if "." in name:
            raise ConfigError(f"{path!r} can't be renamed to {name!r}", hint="only its own name, it stays where it is")
    # A restarted job must be able to recognise which changes are done.
    new_paths = [path.removesuffix(path.rpartition(".")[2]) + name for path, name in renames.items()]
    columns = [*renames, *new_paths, *drops]
    if duplicate := next((column for column in columns if columns.count(column) > 1), None):
        raise ConfigError(f"renames and drops name column {duplicate!r} twice", hint="do one after the other")


@dataclass(frozen=True, kw_only=True)
class Maintenance:
    """How a job keeps the table that it writes in shape; see `IcebergSinkConfig.with_maintenance`.

    The defaults suit a table that is written once a second. Sizes become bytes, time spans timedeltas.

    Args:
        compact_below: Data files below this size are compacted: bytes, or a text such as ``"32MB"``. A file waits for
            others of its partition with together as many rows, so that each row is rewritten a few times only. None =
            no compaction.
        deletes_above: Data files with at least this share of deleted rows are rewritten.
        deletes: True merges the delete files of each data file into one.
        expire_after: Snapshots of this age expire, with their files. None = none expire.
        retain_last: The number of snapshots that each branch keeps even if they are older.
        retain_most: The number of snapshots above which older ones of a branch expire, once they are an hour old; None
            = no limit. Let queries and pauses of readers be shorter than that, or set a larger number.
        manifests: True regroups the manifests by partition.
        every: Maintenance is due this long after the last one, if the job has committed since.
        commits: Maintenance is due after this many commits, too.
        delete_files: Maintenance is due after this many new delete files, too: they slow scans more than data files.
        budget: The largest share of the time that it takes, on average over ``every``; above 0 and at most 1.
        row_ttl: Rows of this age are deleted, up to a hundredth of it later, when maintenance is due; snapshots that
            have them expire as others do. None = rows stay.
        row_ttl_column: The column of dates or timestamps that tells a row's age; without a zone, they are in UTC. Rows
            with null in it stay.

    Raises:
        ConfigError: If one is wrong.

    Example:
        >>> from volley import Maintenance
        >>> Maintenance(compact_below="64MB", every="5m").compact_below
        67108864
    """

    compact_below: int | str | None = "32MB"
    deletes_above: float = 0.2
    deletes: bool = True
    expire_after: Duration | None = timedelta(days=7)
    retain_last: int = 100
    retain_most: int | None = 1000
    manifests: bool = True
    every: Duration = timedelta(minutes=10)
    commits: int = 100
    delete_files: int = 32
    budget: float = 0.2
    row_ttl: Duration | None = None
    row_ttl_column: str | None = None

    def __post_init__(self) -> None:
        keep(self, row_ttl=optional(duration), row_ttl_column=optional(text))
        if (self.row_ttl is None) != (self.row_ttl_column is None):
            raise ConfigError(
                "row_ttl and row_ttl_column are not both given",
                hint='the age, and the column that tells it: Maintenance(row_ttl="90d", row_ttl_column="at")',
            )
        keep(self, compact_below=optional(size), deletes_above=between(0, 1), deletes=flag, manifests=flag)
        keep(self, expire_after=optional(duration), retain_last=count, retain_most=optional(count))
        keep(self, every=duration, commits=count, delete_files=count, budget=between(0, 1))
        if self.retain_most is not None and self.retain_most < self.retain_last:
            raise ConfigError(
                f"retain_most {self.retain_most} is below retain_last {self.retain_last}", hint="swap the two"
            )

    _repr_html_ = settings_html
