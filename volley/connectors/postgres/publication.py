"""The publication: created if there is none, otherwise checked; which tables a source reads of it."""

from __future__ import annotations

from psycopg2.extensions import connection as Connection

from volley.connectors.postgres.connection import query
from volley.connectors.postgres.selection import Selection
from volley.connectors.postgres.settings import TableName
from volley.connectors.postgres.tables import Table, describe, oid_of
from volley.connectors.postgres.watch import published
from volley.errors import SourceError

__all__ = ["ensure_publication", "selected_tables"]

_EVERY = """
    select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p') and not c.relispartition and c.relpersistence = 'p'
        and n.nspname <> 'information_schema' and n.nspname not like 'pg\\_%' order by 1, 2
"""
_PUBLICATION = """
    select pubinsert and pubupdate and pubdelete and pubtruncate, pubviaroot from pg_publication where pubname = %s
"""
_SCHEMAS_SINCE = 150_000


def selected_tables(connection: Connection, name: str, selection: Selection) -> tuple[list[Table], bool]:
    """Return the tables that a source reads now, and whether the publication has them already.

    Raises:
        SourceError: If a table that is named does not exist, or there is none.
    """
    named = [oid_of(connection, table) for table in selection.named]
    exists = bool(query(connection, _PUBLICATION, name))
    if selection.only is not None:
        oids = named
    elif exists:
        oids = [*published(connection, name, selection)]
    else:
        oids = [oid_of(connection, table) for table in _matching(connection, selection)]
        if not oids:
            raise SourceError(f"no table matches {selection}", hint="check schema and name; case counts")
    tables = (describe(connection, oid) for oid in oids)
    return [table for table in tables if table is not None], exists and selection.only is None


def ensure_publication(connection: Connection, name: str, selection: Selection) -> None:
    """Create the publication if there is none; otherwise check that it has the tables, whole.

    Raises:
        SourceError: If it lacks a table, some of its operations, rows or columns.
    """
    found = query(connection, _PUBLICATION, name)
    if not found:
        query(connection, f'create publication "{name}" for {_members(connection, selection)} with ({_VIA_ROOT})')
        return
    has_all, via_root = found[0]
    if not has_all:
        raise SourceError(
            f"publication {name!r} leaves out operations: the tables would miss changes",
            hint=f"alter publication {name} set (publish = 'insert, update, delete, truncate')",
        )
    for named in selection.named:
        _check_has(connection, name, named, via_root)
    for oid in published(connection, name, selection):
        table = describe(connection, oid)
        if table is not None:
            _check_whole(connection, name, table)


_VIA_ROOT = "publish_via_partition_root = true"


def _matching(connection: Connection, selection: Selection) -> list[TableName]:
    return [name for name in (TableName(*row) for row in query(connection, _EVERY)) if name in selection]


def _members(connection: Connection, selection: Selection) -> str:
    if selection.is_whole_database:
        return "all tables"
    ((version,),) = query(connection, "select current_setting('server_version_num')::int")
    schemas = selection.schemas if version >= _SCHEMAS_SINCE else ()
    tables = [name.quoted for name in _matching(connection, selection) if name.schema not in schemas]
    parts = [f"table {', '.join(tables)}"] if tables else []
    quoted = [TableName(schema, "").quoted.partition(".")[0] for schema in schemas]
    return ", ".join([*parts, *(f"tables in schema {schema}" for schema in quoted)])


def _check_has(connection: Connection, name: str, table: TableName, via_root: bool) -> None:
    oid = oid_of(connection, table)
    if oid in published(connection, name, Selection((table,))):
        return
    ((kind,),) = query(connection, "select relkind::text from pg_class where oid = %s", oid)
    if kind == "p" and not via_root:
        raise SourceError(
            f"publication {name!r} has the partitions of {table}, and not the table itself",
            hint=f"alter publication {name} set ({_VIA_ROOT})",
        )
    raise SourceError(
        f"publication {name!r} does not have table {table}",
        hint=f"alter publication {name} add table {table.quoted}; changes made before are not in the stream",
    )


def _check_whole(connection: Connection, name: str, table: Table) -> None:
    sql = "select to_jsonb(p) from pg_publication_tables p where pubname = %s and schemaname = %s and tablename = %s"
    for (published_table,) in query(connection, sql, name, table.name.schema, table.name.table):
        if published_table.get("rowfilter") is not None:
            raise SourceError(
                f"publication {name!r} has only some rows of table {table.name}: the load would have all of them",
                hint="publish the table without a row filter, and filter the stream: .filter_expr(…)",
            )
        # PostgreSQL 15 and newer say which columns are published.
        columns = published_table.get("attnames", table.names)
        if lacking := [column for column in table.names if column not in columns]:
            raise SourceError(
                f"publication {name!r} has only some columns of table {table.name}: it lacks {lacking[0]!r}",
                hint="publish the table without a list of columns, and drop them from the stream: .drop(…)",
            )
