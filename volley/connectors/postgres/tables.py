"""A table as PostgreSQL's catalog describes it: its columns, its replica identity, the file it is stored in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from psycopg2.extensions import connection as Connection

from volley.connectors.postgres.connection import query
from volley.connectors.postgres.settings import TableName
from volley.connectors.postgres.types import Column
from volley.errors import SourceError

__all__ = ["Table", "describe"]

_TABLE = """
    select c.oid::bigint, c.relfilenode::bigint, c.relkind::text, c.relpersistence::text, c.relreplident::text
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s
"""
_COLUMNS = """
    with recursive typed(number, type, modifier) as (
        select attnum, atttypid, atttypmod from pg_attribute
        where attrelid = %(oid)s and attnum > 0 and not attisdropped and attgenerated = ''
        union all
        select c.number, t.typbasetype, greatest(c.modifier, t.typtypmod)
        from typed c join pg_type t on t.oid = c.type where t.typtype = 'd'
    )
    select a.attname, a.attnum, c.type::bigint, c.modifier, array_position(i.indkey::smallint[], a.attnum),
        a.atthasmissing
    from typed c join pg_type t on t.oid = c.type and t.typtype <> 'd'
    join pg_attribute a on a.attrelid = %(oid)s and a.attnum = c.number
    join pg_class r on r.oid = a.attrelid
    left join pg_index i on i.indrelid = a.attrelid and i.indimmediate
        and case r.relreplident when 'i' then i.indisreplident else i.indisprimary end
    order by a.attnum
"""


@dataclass(frozen=True)
class Table:
    """A table, as its catalog has it now.

    Args:
        name: Its name.
        oid: Its oid; a table that is made again has a new one.
        storage: The number of its file; a rewritten or truncated table has a new one.
        kind: ``"r"`` = an ordinary table, ``"p"`` = a partitioned one, …
        persistence: ``"p"`` = its changes are in the log.
        identity: What an old row has: ``"d"`` = the primary key, ``"i"`` = an index's columns, ``"f"`` = all columns,
            ``"n"`` = nothing.
        columns: The columns that the stream sends: all but generated ones.
    """

    name: TableName
    oid: int
    storage: int
    kind: str
    persistence: str
    identity: str
    columns: tuple[Column, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a row: the primary key, or those of the identity's index; empty = none."""
        keys = [column for column in self.columns if column.key is not None]
        return tuple(column.name for column in sorted(keys, key=lambda column: column.key or 0))

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of its rows. All columns are nullable: a deleted row has only its keys."""
        return pa.schema([(column.name, column.data_type) for column in self.columns])

    def to_json(self) -> dict[str, Any]:
        """Return what tells later whether the table was changed in a way that the stream does not carry."""
        return {
            "oid": self.oid,
            "storage": self.storage,
            "columns": [[column.number, column.name, str(column.data_type)] for column in self.columns],
        }


def describe(connection: Connection, name: TableName) -> Table:
    """Return a table's description.

    Raises:
        SourceError: If there is no such table.
    """
    rows = query(connection, _TABLE, name.schema, name.table)
    if not rows:
        raise SourceError(f"table {name} not found", hint="check schema and name; case counts")
    oid, storage, kind, persistence, identity = rows[0]
    columns = [Column(*row) for row in query(connection, _COLUMNS, oid=oid)]
    columns = [replace(column, key=None) if identity == "n" else column for column in columns]
    return Table(name, oid, storage, kind, persistence, identity, tuple(columns))
