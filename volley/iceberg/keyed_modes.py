"""The commit modes that find rows by their keys: what they have in common, and `History`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

from volley.checks import Duration, duration, keep, names, one_of, optional, text
from volley.errors import ConfigError
from volley.html_table import settings_html
from volley.plan.expression_nodes import Call, Column, ExprNode, output_name
from volley.plan.expressions import Expr

__all__ = ["History", "KeyedMode", "Strategy", "names_or_expressions"]

Strategy = Literal["auto", "merge_on_read", "copy_on_write"]
_SEQUENCE = "_volley_sequence"
"""The column of an expression of `sequence` that has no name of its own."""


class KeyedMode:
    """A commit mode that replaces rows by their keys."""

    key_fields: Sequence[str] | None
    sequence: str | Expr | Sequence[str | Expr] | None
    op_field: str | None
    tombstones: Duration | None
    strategy: Strategy
    order_by: str | None = None
    write_order: bool = True
    unchanged_field: str | None = None
    ignore_nulls: bool | str | Sequence[str] = False
    update_columns: str | Sequence[str] | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a row; empty = those that the stream tells."""
        return tuple(self.key_fields or ())

    @property
    def sequence_fields(self) -> tuple[str, ...]:
        """The columns of the table that tell the sequence; empty = the order of epochs counts."""
        return tuple(_sequence_name(part, number) for number, part in enumerate(self._sequence))

    @property
    def computed(self) -> dict[str, ExprNode]:
        """The expressions of `sequence`, by the column that each becomes."""
        named = zip(self.sequence_fields, self._sequence, strict=True)
        return {name: part for name, part in named if isinstance(part, ExprNode)}

    @property
    def _sequence(self) -> tuple[str | ExprNode, ...]:
        return self.sequence or ()  # type: ignore[return-value]

    @property
    def is_partial(self) -> bool:
        """True if rows may be incomplete: they leave values as they are."""
        return self.unchanged_field is not None or self.is_whole_if_new

    @property
    def is_whole_if_new(self) -> bool:
        """True if the row of a new key has all its values, also those that it would leave as they are."""
        return bool(self.ignore_nulls) or self.update_columns is not None

    @property
    def retention(self) -> timedelta | None:
        """How long tombstones are kept; None = for ever."""
        assert self.tombstones is None or isinstance(self.tombstones, timedelta)
        return self.tombstones

    @property
    def hidden(self) -> frozenset[str]:
        """The columns of the stream that are not written."""
        order = None if self.write_order else self.order_by
        return frozenset(filter(None, [self.op_field, self.unchanged_field, order]))

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns of the table that tell when a version holds; empty = the table has no versions."""
        return ()

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that the mode names: of the stream, or computed."""
        partial = () if isinstance(self.ignore_nulls, bool) else self.ignore_nulls
        roles = (self.order_by, self.op_field, self.unchanged_field)
        columns = *self.keys, *self.sequence_fields, *roles, *partial, *(self.update_columns or ())
        return tuple(column for column in columns if column is not None)


def _sequence_name(part: str | ExprNode, number: int) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Call) and part.op == "alias":
        return output_name(part)
    return f"{_SEQUENCE}_{number + 1}" if number else _SEQUENCE


def names_or_expressions(name: str, value: Any) -> tuple[str | ExprNode, ...]:
    """Return columns and expressions: an expression that is a column counts as its name."""
    listed = [value] if isinstance(value, str | Expr | ExprNode) else value
    if not isinstance(listed, list | tuple):
        return names(name, value)
    parts = [part.node if isinstance(part, Expr) else part for part in listed]
    plain = [part.name if isinstance(part, Column) else part for part in parts]
    names(name, [part for part in plain if not isinstance(part, ExprNode)])
    return tuple(plain)


@dataclass(frozen=True)
class History(KeyedMode):
    """Write each version of a row beside the earlier ones: a slowly changing dimension of type 2.

    A version has the columns of the stream, and three more: from when on it holds, until when (null = it still holds),
    both as values of the sequence, and whether it is the current one. The table is the same in whatever order and
    epochs the changes come, late ones and repeated ones too: a late row splits the version it falls into, a late
    deletion ends it. Of several changes of a key with the same sequence a deletion wins, then the greater values,
    column by column.

    Args:
        key_fields: The columns that identify what the versions are of; stored as a tuple. A null in one is an error.
            None = the stream's own, such as the primary key of a `PostgresSource`.
        sequence: The column, or several, that tell which of two changes of a key is the later one. They are written;
            a null in one is an error. Expressions are taken as by `Upsert`. None = the
            stream's own.
        op_field: A column of the stream with the operation: ``"d"`` or ``"delete"`` (in any case), or True, ends the
            current version; ``"t"`` or ``"truncate"`` those of all keys, also of keys that come later with an earlier
            sequence: such a row needs no keys. The column itself is not written. None = the stream's own; without one,
            every row is a version.
        track: The columns that make a new version when they change. Of the others, a version has its last values. None
            = all but the keys and the sequence, whose changes never make a version.
        tombstones: How long changes are remembered that the versions don't show, such as ``"7d"``: deletions, truncates
            and rows that changed nothing. What comes later than that is taken as if there had been none of these. None
            = for ever. They are remembered in a branch of the table, ``volley-tombstones-main`` for main, which no
            query of the table reads.
        strategy: How versions that end are replaced, as for `Upsert`.
        unchanged_field: A column of the stream with a list of columns' names whose values a row leaves out, as those of
            a `PostgresSource` may: such a row is an error, as it can't make a version. The column itself is not
            written. None = the stream's own, if it has one.
        valid_from: The name of the column with the sequence of a version's first row; of several columns, a struct.
        valid_to: The name of the column with the sequence of the change that ended it; null = none has.
        is_current: The name of the column that is true for versions that none has ended.

    Raises:
        ConfigError: If a column has two roles; if the strategy is unknown.

    Example:
        >>> History("id", sequence="updated_at", op_field="op").own_columns
        ('valid_from', 'valid_to', 'is_current')
    """

    key_fields: Sequence[str] | None = None
    sequence: str | Expr | Sequence[str | Expr] | None = None
    op_field: str | None = None
    track: str | Sequence[str] | None = None
    tombstones: Duration | None = None
    strategy: Strategy = "auto"
    unchanged_field: str | None = None
    valid_from: str = "valid_from"
    valid_to: str = "valid_to"
    is_current: str = "is_current"

    @property
    def is_partial(self) -> bool:
        """False: a version needs whole rows."""
        return False

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns of the table that tell when a version holds."""
        return self.valid_from, self.valid_to, self.is_current

    @property
    def named(self) -> tuple[str, ...]:
        """The columns of the stream that the mode names."""
        return (*super().named, *(self.track or ()))

    def tracked(self, columns: Sequence[str]) -> list[str]:
        """Return those of a table's columns that make a new version when they change."""
        if self.track is not None:
            return [*self.track]
        others = {*self.keys, *self.sequence_fields, *self.own_columns}
        return [column for column in columns if column not in others]

    def __post_init__(self) -> None:
        keep(
            self,
            key_fields=optional(names),
            sequence=optional(names_or_expressions),
            op_field=optional(text),
            track=optional(names),
        )
        keep(
            self,
            unchanged_field=optional(text),
            tombstones=optional(duration),
            valid_from=text,
            valid_to=text,
            is_current=text,
        )
        one_of(get_args(Strategy))("strategy", self.strategy)
        if self.key_fields == ():
            raise ConfigError("key_fields are ()", hint='name each key column once: History(["id"], sequence=…)')
        if self.sequence == ():
            raise ConfigError("sequence names no column", hint='History("id", sequence="updated_at")')
        if self.track == ():
            raise ConfigError("track names no column", hint="name the columns whose changes make a new version")
        self._check_roles()

    def _check_roles(self) -> None:
        roles = {
            "key_fields": self.keys,
            "sequence": self.sequence_fields,
            "op_field": (self.op_field,) if self.op_field else (),
            "unchanged_field": (self.unchanged_field,) if self.unchanged_field else (),
            "track": tuple(self.track or ()),
            **{name: (getattr(self, name),) for name in ("valid_from", "valid_to", "is_current")},
        }
        taken: dict[str, str] = {}
        for role, columns in roles.items():
            for column in columns:
                if column in taken:
                    raise ConfigError(
                        f"column {column!r} is in {taken[column]} and in {role}", hint="give each column one role"
                    )
                taken[column] = role

    _repr_html_ = settings_html
