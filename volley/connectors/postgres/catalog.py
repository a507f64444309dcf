"""What the catalog says beside the tables: how they are in a publication, types that print by it, and a fingerprint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from psycopg2.extensions import connection as Connection

from volley.capture.selection import TableName
from volley.connectors.postgres.connection import query

__all__ = [
    "GENERATED_SINCE",
    "SCHEMAS_SINCE",
    "Member",
    "Membership",
    "PrintedType",
    "fingerprint",
    "members",
    "printed_types",
]

SCHEMAS_SINCE = 150_000
"""The first version whose publications have schemas."""
GENERATED_SINCE = 180_000
"""The first version whose publications may have stored generated columns."""

# Which columns and rows are published, PostgreSQL 15 and newer say. A table is also in by what it is a partition of.
_MEMBERS = """
    select c.oid::bigint, n.nspname, c.relname, to_jsonb(p) -> 'attnames', to_jsonb(p) ->> 'rowfilter' is not null,
        b.pubinsert and b.pubupdate and b.pubdelete and b.pubtruncate, concat_ws(' ', b.oid, b.xmin),
        array(
            select w.way from (
                select c.oid, c.relnamespace
                union all select a.relid, (select r.relnamespace from pg_class r where r.oid = a.relid)
                from pg_partition_ancestors(c.oid) a where c.relispartition and a.relid <> c.oid
            ) k, lateral ({ways}) w(way) order by w.way
        )
    from pg_publication b join pg_publication_tables p on p.pubname = b.pubname
    join pg_namespace n on n.nspname = p.schemaname
    join pg_class c on c.relnamespace = n.oid and c.relname = p.tablename
    where b.pubname = %(publication)s and (%(oid)s::bigint is null or c.oid = %(oid)s::bigint::oid)
    order by n.nspname, c.relname
"""
_BY_TABLE = """
    select concat_ws(' ', 'table', r.oid, r.xmin) from pg_publication_rel r
    where r.prpubid = b.oid and r.prrelid = k.oid
"""
_BY_SCHEMA = """
    select concat_ws(' ', 'schema', s.oid, s.xmin) from pg_publication_namespace s
    where s.pnpubid = b.oid and s.pnnspid = k.relnamespace
"""
_BY_ALL = "select 'all tables' where b.puballtables"
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
# Whatever is altered has another transaction (xmin). Temporary tables come and go, and are never captured.
_FINGERPRINT = """
    select hashtextextended(concat_ws('|',
        (select concat_ws(' ', oid, xmin) from pg_publication where pubname = %(publication)s),
        (select string_agg(concat_ws(' ', oid, xmin), ',' order by oid) from pg_publication_rel),
        {schemas}
        (select string_agg(concat_ws(' ', oid, xmin), ',' order by oid) from pg_namespace where nspname !~ '^pg_'),
        (select string_agg(concat_ws(' ', oid, xmin), ',' order by oid) from pg_enum),
        (
            select string_agg(concat_ws(' ', oid, xmin, relfilenode), ',' order by oid) from pg_class
            where oid >= 16384 and relkind in ('r', 'p', 'f', 'c') and relpersistence <> 't'
        ),
        (
            select string_agg(concat_ws(' ', a.attrelid, a.attnum, a.xmin), ',' order by a.attrelid, a.attnum)
            from (
                select oid from unnest(%(tables)s::bigint[]::oid[]) oid
                union select oid from pg_class where oid >= 16384 and relkind = 'c'
            ) r join pg_attribute a on a.attrelid = r.oid and a.attnum > 0
        )
    ), 0)
"""
_SCHEMAS = "(select string_agg(concat_ws(' ', oid, xmin), ',' order by oid) from pg_publication_namespace),"


@dataclass(frozen=True)
class Membership:
    """How a table is in a publication."""

    name: str
    publication: str  # its oid, and the transaction that altered it last
    # By what it is in it, with the oids and last transactions of the entries: itself, its schema, all tables.
    ways: tuple[str, ...]
    whole: bool  # True if all operations are published
    filtered: bool  # True if only some rows are

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Membership:
        """Return the membership that `asdict` made a dictionary of."""
        return cls(**{**values, "ways": tuple(values["ways"])})

    def is_kept_by(self, now: Membership) -> bool:
        """Return True if the table was in the publication all the time, and that was not altered."""
        return self.publication == now.publication and not {*self.ways}.isdisjoint(now.ways)


@dataclass(frozen=True)
class Member:
    """A table that a publication has."""

    oid: int
    name: TableName
    # The names of the columns that are published; None = the server is too old to say: all but generated.
    columns: frozenset[str] | None
    membership: Membership


def members(connection: Connection, publication: str, oid: int | None = None) -> list[Member]:
    """Return the tables that a publication has, or the one of an oid; none if there is no such publication."""
    parts = [_BY_TABLE, _BY_ALL, *([_BY_SCHEMA] if connection.server_version >= SCHEMAS_SINCE else [])]
    sql = _MEMBERS.format(ways=" union all ".join(parts))
    return [
        Member(
            number,
            TableName(schema, name),
            None if columns is None else frozenset(columns),
            Membership(publication, altered, tuple(ways), whole, filtered),
        )
        for number, schema, name, columns, filtered, whole, altered, ways in query(
            connection, sql, publication=publication, oid=oid
        )
    ]


@dataclass(frozen=True)
class PrintedType:
    """A type that the values of a column are made of."""

    column: int
    oid: int
    name: str
    is_enum: bool  # True for an enum, False for a composite type
    # An enum's labels by their oids; the types of a composite type's attributes by their numbers.
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


def fingerprint(connection: Connection, publication: str, tables: Collection[int]) -> int:
    """Return a number that changes with the publications, tables, partitions and types of a database."""
    schemas = _SCHEMAS if connection.server_version >= SCHEMAS_SINCE else ""
    sql = _FINGERPRINT.format(schemas=schemas)
    ((number,),) = query(connection, sql, publication=publication, tables=[*tables])
    return int(number)
