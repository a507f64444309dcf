"""Types whose catalog decides how stored values print: enums by their labels, composite types by their attributes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from psycopg2.extensions import connection as Connection

from volley.connectors.postgres.connection import query

__all__ = ["PrintedType", "printed_types"]

# Types of the system have oids below 16384, and lead to none of users. An array, a domain, a range and a composite type
# print what is in them.
_PRINTED = """
    with recursive used(relation, number, type) as (
        select attrelid, attnum, atttypid from pg_attribute
        where attrelid = any(%(oids)s::bigint[]::oid[]) and attnum > 0 and not attisdropped and atttypid >= 16384
        union
        select u.relation, u.number, x.inner_type from used u join pg_type t on t.oid = u.type, lateral (
            select t.typbasetype union all select t.typelem
            union all select rngsubtype from pg_range where rngtypid = t.oid
            union all select a.atttypid from pg_attribute a
                where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
            {multiranges}
        ) x(inner_type) where x.inner_type >= 16384
    )
    select u.relation::bigint, u.number, t.oid::bigint, format_type(t.oid, null), t.typtype = 'e',
        p.part::bigint, p.text
    from used u join pg_type t on t.oid = u.type left join lateral (
        select e.oid, e.enumlabel::text from pg_enum e where e.enumtypid = t.oid
        union all select a.attnum::oid, a.atttypid::text from pg_attribute a
            where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
    ) p(part, text) on true where t.typtype in ('e', 'c') order by 1, 2, 3, 6
"""
_MULTIRANGES = "union all select rngtypid from pg_range where rngmultitypid = t.oid"
_MULTIRANGES_SINCE = 140_000


@dataclass(frozen=True)
class PrintedType:
    """A type that the values of a column are made of.

    Args:
        column: The column's number.
        oid: The type's oid.
        name: Its name.
        is_enum: True for an enum, False for a composite type.
        parts: An enum's labels by their oids; the types of a composite type's attributes by their numbers.
    """

    column: int
    oid: int
    name: str
    is_enum: bool
    parts: tuple[tuple[int, str], ...]

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> PrintedType:
        """Return the type that `asdict` made a dictionary of."""
        return cls(**{**values, "parts": tuple((part, text) for part, text in values["parts"])})

    def changed(self, now: PrintedType) -> str | None:
        """Return what has changed so that values which were stored before print otherwise now; None = nothing."""
        before, after = dict(self.parts), dict(now.parts)
        if not self.is_enum:
            return None if before == after else "its attributes are others"
        renamed = (part for part in before if part in after and before[part] != after[part])
        return next((f"{before[part]!r} is {after[part]!r}" for part in renamed), None)


def printed_types(connection: Connection, oids: Sequence[int]) -> Mapping[int, tuple[PrintedType, ...]]:
    """Return by the oids of tables the types of their columns, and of what these are made of."""
    extra = _MULTIRANGES if connection.server_version >= _MULTIRANGES_SINCE else ""
    rows = query(connection, _PRINTED.format(multiranges=extra), oids=[*oids])
    types: dict[int, tuple[PrintedType, ...]] = defaultdict(tuple)
    for (table, column, oid, name, is_enum), group in groupby(rows, key=itemgetter(slice(5))):
        # A type without any has one row of nulls.
        parts = tuple((part, text) for *_, part, text in group if text is not None)
        types[table] += (PrintedType(column, oid, name, is_enum, parts),)
    return types
