"""How an epoch changes a table, as plain values: append, overwrite, upsert; and how far its schema may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from volley.checks import names, one_of
from volley.errors import ConfigError, near

__all__ = ["Append", "CommitMode", "Overwrite", "Upsert", "check_evolution", "commit_mode"]

_STRATEGIES = ("auto", "merge_on_read", "copy_on_write")
_EVOLUTIONS = ("strict", "add_columns", "full")


@dataclass(frozen=True)
class Append:
    """Add the rows; what is there stays as it is."""


@dataclass(frozen=True, repr=False)
class Overwrite:
    """Replace what is there by the rows of the epoch; an epoch without rows changes nothing.

    ``Overwrite()`` replaces the whole table, `dynamic` the partitions that the epoch has rows for, `partitions` those
    that are named.

    Example:
        >>> Overwrite.partitions({"country": "NO"}, {"country": "SE"})
        Overwrite.partitions({'country': 'NO'}, {'country': 'SE'})
    """

    by_partition: bool = False
    named: tuple[tuple[tuple[str, object], ...], ...] = ()

    @classmethod
    def dynamic(cls) -> Overwrite:
        """Replace the partitions that the epoch has rows for, whole; the others stay as they are."""
        return cls(by_partition=True)

    @classmethod
    def partitions(cls, *partitions: Mapping[str, object]) -> Overwrite:
        """Replace the named partitions; a row of any other stops the job before anything is committed.

        Args:
            partitions: Each the values of partition fields, or of columns that the table is partitioned by as they
                are. Fields that are left out may have any value.

        Raises:
            ConfigError: If none is named, or one names no field.
        """
        if not partitions or not all(
            isinstance(each, Mapping) and each and all(isinstance(name, str) for name in each) for each in partitions
        ):
            raise ConfigError(
                f"partitions are {partitions!r}", hint='name one or more: Overwrite.partitions({"country": "NO"})'
            )
        return cls(True, tuple(tuple(each.items()) for each in partitions))

    def __repr__(self) -> str:
        if self.named:
            return f"Overwrite.partitions({', '.join(repr(dict(each)) for each in self.named)})"
        return "Overwrite.dynamic()" if self.by_partition else "Overwrite()"


@dataclass(frozen=True)
class Upsert:
    """Replace the rows that have the same keys, add the others.

    Of several rows of an epoch with the same keys the last wins; what a later epoch brings replaces what an earlier
    one brought.

    Args:
        key_fields: The columns that tell whether two rows are the same; kept as a tuple. A null in one is an error.
        order_by: The column whose highest value is the last of an epoch's rows, nulls first; None = as they arrive.
        op_field: A column of the stream that tells what a row is: ``"d"`` or ``"delete"`` (in any case), or True,
            removes the row with its keys; anything else writes it. The column itself is not written.
        strategy: "merge_on_read" writes the positions of replaced rows beside the data files, "copy_on_write" writes
            those data files anew; "auto" does the latter where a large part of a file is replaced. Tables of format
            version 1 have no place for positions: their files are written anew.

    Raises:
        ConfigError: If there is no key, or one is named twice; if the op column is a key; if the strategy is unknown.

    Example:
        >>> Upsert(["id", "event_date"]).key_fields
        ('id', 'event_date')
    """

    key_fields: Sequence[str]
    order_by: str | None = None
    op_field: str | None = None
    strategy: str = "auto"

    def __post_init__(self) -> None:
        keys = names("key_fields", self.key_fields)
        if not keys or len(set(keys)) < len(keys):
            raise ConfigError(f"key_fields are {keys!r}", hint='name each key column once: Upsert(["id"])')
        for name, column in (("order_by", self.order_by), ("op_field", self.op_field)):
            if column is not None and (not isinstance(column, str) or not column):
                raise ConfigError(f"{name} {column!r} is not a column name", hint="the name of a column, or None")
        if self.op_field is not None and self.op_field in (*keys, self.order_by):
            raise ConfigError(
                f"op_field {self.op_field!r} is a key or order_by too", hint="it is not written: name it once"
            )
        one_of(_STRATEGIES)("strategy", self.strategy)
        object.__setattr__(self, "key_fields", keys)


CommitMode = Append | Overwrite | Upsert


def commit_mode(value: CommitMode | str) -> CommitMode:
    """A mode by its name, or as it is.

    Raises:
        ConfigError: If there is no such mode, or it needs more than its name.

    Example:
        >>> commit_mode("append")
        Append()
    """
    if isinstance(value, Append | Overwrite | Upsert):
        return value
    if value == "upsert":
        raise ConfigError("commit_mode 'upsert' needs key fields", hint='Upsert(["id"])')
    named: dict[str, CommitMode] = {"append": Append(), "overwrite": Overwrite()}
    if not isinstance(value, str) or value not in named:
        raise ConfigError(f"commit_mode {value!r} is unknown", hint=near(str(value), [*named, "upsert"]))
    return named[value]


def check_evolution(mode: str, renames: Mapping[str, str], drops: Sequence[str]) -> None:
    """Raise ConfigError unless these are settings of a schema evolution that can be done, and done again.

    Args:
        mode: Its name.
        renames: Dotted names of columns and their new names.
        drops: Dotted names of columns.
    """
    one_of(_EVOLUTIONS)("schema_evolution", mode)
    if mode != "full" and (renames or drops):
        raise ConfigError(
            f"renames and drops are not for schema_evolution {mode!r}", hint='with_schema_evolution("full", …)'
        )
    for each in (*renames, *renames.values(), *drops):
        if not isinstance(each, str) or not each:
            raise ConfigError(f"renames or drops have {each!r}", hint="the dotted name of a column")
    for path, name in renames.items():
        if "." in name:
            raise ConfigError(f"{path!r} can't be renamed to {name!r}", hint="only its own name, it stays where it is")
    # Started again, a job must be able to tell what is done from what is not.
    wanted = [path.removesuffix(path.rpartition(".")[2]) + name for path, name in renames.items()]
    named = [*renames, *wanted, *drops]
    if twice := next((each for each in named if named.count(each) > 1), None):
        raise ConfigError(f"renames and drops name column {twice!r} twice", hint="do one after the other")
