"""How tables are in a publication: what it sends of them, and what tells whether it was altered since the last look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg2.extensions import connection as Connection

from volley.connectors.postgres.connection import query
from volley.connectors.postgres.settings import TableName

__all__ = ["GENERATED_SINCE", "SCHEMAS_SINCE", "Member", "Membership", "members"]

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


@dataclass(frozen=True)
class Membership:
    """How a table is in a publication.

    Args:
        name: The publication's name.
        publication: Its oid, and the transaction that altered it last.
        ways: By what it is in it, with the oids and last transactions of the entries: itself, its schema, all tables.
        whole: True if all operations are published.
        filtered: True if only some rows are.
    """

    name: str
    publication: str
    ways: tuple[str, ...]
    whole: bool
    filtered: bool

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Membership:
        """Return the membership that `asdict` made a dictionary of."""
        return cls(**{**values, "ways": tuple(values["ways"])})

    def is_kept_by(self, now: Membership) -> bool:
        """Return True if the table was in the publication all the time, and that was not altered."""
        return self.publication == now.publication and not {*self.ways}.isdisjoint(now.ways)


@dataclass(frozen=True)
class Member:
    """A table that a publication has.

    Args:
        oid: Its oid.
        name: Its name.
        columns: The names of the columns that are published; None = the server is too old to say: all but generated.
        membership: How it is in the publication.
    """

    oid: int
    name: TableName
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
