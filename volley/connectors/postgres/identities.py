"""Replica identities: tables whose own writers would fail once they are published, partitions that lack a key."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg2.extensions import connection as Connection

from volley.connectors.postgres.connection import query
from volley.connectors.postgres.membership import GENERATED_SINCE
from volley.connectors.postgres.settings import TableName
from volley.connectors.postgres.tables import Table
from volley.errors import SourceError

__all__ = ["check_partitions", "check_writers"]

# The identity is that of the partition which a row is in, not that of the root. Unlogged ones are not published.
_WRITTEN = """
    with published(oid) as (
        select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace where case
            when %(whole)s then n.nspname <> 'information_schema' and n.nspname not like 'pg\\_%%'
            else n.nspname = any(%(schemas)s::text[]) end
        union select t.oid::oid from unnest(%(tables)s::text[]::regclass[]) t(oid)
        union select p.relid::oid from unnest(%(tables)s::text[]::regclass[]) t(oid), pg_partition_tree(t.oid) p
    )
    select n.nspname, c.relname,
        c.relreplident = 'n' or c.relreplident <> 'f' and not exists (
            select from pg_index i where i.indrelid = c.oid and i.indimmediate
            and case c.relreplident when 'i' then i.indisreplident else i.indisprimary end
        ),
        case when c.relreplident = 'f' then (
            select min(a.attname) from pg_attribute a
            where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated::text = 'v'
        ) end, m.nspname, r.relname
    from published t join pg_class c on c.oid = t.oid join pg_namespace n on n.oid = c.relnamespace
    join pg_class r on r.oid = coalesce(pg_partition_root(c.oid), c.oid) join pg_namespace m on m.oid = r.relnamespace
    where c.relkind in ('r', 'p') and c.relpersistence = 'p' order by 1, 2
"""
_PARTITIONS = """
    select n.nspname, c.relname from pg_partition_tree(%(oid)s::oid) t join pg_class c on c.oid = t.relid
    join pg_namespace n on n.oid = c.relnamespace
    where t.isleaf and c.relreplident not in ('f', 'n') and not array(
        select a.attname::text from pg_index i, unnest(i.indkey::smallint[]) k(number)
        join pg_attribute a on a.attnum = k.number
        where i.indrelid = c.oid and a.attrelid = c.oid and case c.relreplident when 'i' then i.indisreplident
            else i.indisprimary end
    ) @> %(keys)s::text[] order by 1, 2
"""


def check_writers(connection: Connection, tables: Sequence[TableName] | None, schemas: Sequence[str]) -> None:
    """Check that those who write to tables could go on if a publication had them, with all operations.

    Args:
        connection: A connection to the database.
        tables: The tables; None = all.
        schemas: Schemas of which all tables are published.

    Raises:
        SourceError: If the updates and deletes of one would fail.
    """
    settings = {"whole": tables is None, "tables": [name.quoted for name in tables or ()], "schemas": [*schemas]}
    for schema, name, has_none, generated, *root in query(connection, _WRITTEN, **settings):
        table, without = TableName(schema, name), f"exclude={TableName(*root).setting!r}"
        if has_none:
            raise SourceError(
                f"table {table} has no replica identity: once published, its own updates and deletes would fail",
                hint=f"add a primary key, or: alter table {table.quoted} replica identity full; or leave it out: "
                f"{without}",
            )
        if generated is not None and connection.server_version >= GENERATED_SINCE:
            raise SourceError(
                f"table {table} has replica identity full, and column {generated!r}, which is generated and not "
                "stored: once published, its own updates and deletes would fail",
                hint=f"alter table {table.quoted} replica identity default; or make the column a stored one; or leave "
                f"the table out: {without}",
            )


def check_partitions(connection: Connection, table: Table) -> None:
    """Check that each partition of a table tells the table's key of deleted rows.

    Raises:
        SourceError: If the replica identity of one lacks a column of the key.
    """
    if table.kind != "p" or not table.keys:
        return
    for schema, name in query(connection, _PARTITIONS, oid=table.oid, keys=[*table.keys]):
        part, keys = TableName(schema, name), ", ".join(map(repr, table.keys))
        raise SourceError(
            f"table {table.name}: the replica identity of its partition {part} lacks a column of the key ({keys}): "
            "rows that it deletes could not be told apart",
            hint=f"alter table {part.quoted} replica identity full; or give it the identity that the table has",
        )
