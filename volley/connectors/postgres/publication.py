"""The publication: created if there is none, else checked; which tables are read of it, and who may write to them."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg2
from psycopg2.extensions import connection as Connection

from volley.capture.selection import Selection, TableName
from volley.connectors.postgres.catalog import GENERATED_SINCE, SCHEMAS_SINCE, members
from volley.connectors.postgres.connection import query
from volley.connectors.postgres.settings import ANEW
from volley.connectors.postgres.tables import Table, describe_all, oid_of
from volley.errors import SourceError, SourceNotFoundError

__all__ = [
    "check_has",
    "check_may_create",
    "check_partitions",
    "check_sent",
    "check_writers",
    "ensure_publication",
    "lacks_root",
    "selected_tables",
]

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
_EVERY = """
    select n.nspname, c.relname, c.oid::bigint from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p') and not c.relispartition and c.relpersistence = 'p'
        and n.nspname <> 'information_schema' and n.nspname not like 'pg\\_%' order by 1, 2
"""
_LACKS_ROOT = """
    select relkind = 'p' and not pubviaroot from pg_class, pg_publication where pg_class.oid = %s and pubname = %s
"""
_MAY_CREATE = "select current_database(), has_database_privilege(current_database(), 'create')"
_SHOWN = 500
_VIA_ROOT = "publish_via_partition_root = true"
_STORED = "publish_generated_columns = stored"


def check_writers(connection: Connection, tables: Sequence[TableName] | None, schemas: Sequence[str]) -> None:
    """Check that those who write to tables could go on if a publication had them, with all operations.

    Args:
        tables: The tables; None = all.
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
    """Check that each partition of a table tells the table's key of deleted rows."""
    if table.kind != "p" or not table.keys:
        return
    for schema, name in query(connection, _PARTITIONS, oid=table.oid, keys=[*table.keys]):
        part, keys = TableName(schema, name), ", ".join(map(repr, table.keys))
        raise SourceError(
            f"table {table.name}: the replica identity of its partition {part} lacks a column of the key ({keys}): "
            "rows that it deletes could not be told apart",
            hint=f"alter table {part.quoted} replica identity full; or give it the identity that the table has",
        )


def selected_tables(connection: Connection, name: str, selection: Selection) -> list[Table]:
    """Return the tables that a source reads now.

    Raises:
        SourceError: If a table that is named does not exist, or the publication lacks it, or there is none, or those
            who write to a table would fail once it is published.
    """
    named = [oid_of(connection, table) for table in selection.named]
    is_there = _exists(connection, name)
    if is_there:
        _check_has_all(connection, name, selection)
    if selection.only is not None:
        oids = named
    elif is_there:
        oids = [member.oid for member in members(connection, name) if member.name in selection]
    else:
        oids = [*_matching(connection, selection).values()]
        if not oids:
            raise SourceNotFoundError(f"no table matches {selection}", hint="check schema and name; case counts")
    if not is_there:
        check_writers(connection, *_members(connection, selection))
    tables = describe_all(connection, oids, name).values()
    # A table without columns that is not named joins when it has one.
    return [table for table in tables if table.columns or table.name in selection.named]


def _exists(connection: Connection, name: str) -> bool:
    """Return True if there is a publication of a name."""
    return bool(query(connection, "select 1 from pg_publication where pubname = %s", name))


def ensure_publication(connection: Connection, name: str, selection: Selection) -> None:
    """Create the publication if there is none; otherwise check that it has the tables that are named.

    Raises:
        SourceError: If it lacks one, or those who write to a table would fail once it is published.
    """
    if _exists(connection, name):
        _check_has_all(connection, name, selection)
        return
    check_writers(connection, *_members(connection, selection))
    try:
        query(connection, _creation(connection, name, selection))
    except psycopg2.errors.InsufficientPrivilege as error:
        raise _not_made(connection, name, selection, str(error).strip()) from error


def _creation(connection: Connection, name: str, selection: Selection) -> str:
    """Return the statement that creates the publication."""
    # Its writers would break if the replica identity had a column that is generated, and not published.
    options = [_VIA_ROOT, *([_STORED] if connection.server_version >= GENERATED_SINCE else [])]
    members = _written(*_members(connection, selection))
    return f'create publication "{name}" for {members} with ({", ".join(options)})'


def check_may_create(connection: Connection, name: str, selection: Selection) -> None:
    """Raise SourceError if there is no publication, and the role has not the right to create one."""
    if _exists(connection, name):
        return
    ((database, may_create),) = query(connection, _MAY_CREATE)
    if not may_create:
        raise _not_made(connection, name, selection, f"permission denied for database {database}")


def _not_made(connection: Connection, name: str, selection: Selection, reason: str) -> SourceError:
    """Return the error of a role that may not create the publication, with what its owner has to run."""
    ((role,),) = query(connection, "select current_user")
    statement = _creation(connection, name, selection)
    return SourceError(
        f"publication {name!r} is not there, and role {role!r} may not create it: {reason}",
        hint=f"let the owner of the tables run: {statement if len(statement) <= _SHOWN else f'{statement[:_SHOWN]} …'}",
    )


def _check_has_all(connection: Connection, name: str, selection: Selection) -> None:
    for table in selection.named:
        check_has(connection, name, table)


def _matching(connection: Connection, selection: Selection) -> dict[TableName, int]:
    """Return the tables that may be published and are selected, with their oids."""
    tables = {TableName(schema, name): oid for schema, name, oid in query(connection, _EVERY)}
    return {name: oid for name, oid in tables.items() if name in selection}


def _members(connection: Connection, selection: Selection) -> tuple[list[TableName] | None, tuple[str, ...]]:
    """Return the tables, None for all, and the schemas that the job's publication is for."""
    if selection.is_whole_database:
        return None, ()
    schemas = selection.schemas if connection.server_version >= SCHEMAS_SINCE else ()
    # A partition may be selected by its name alone.
    tables = dict.fromkeys([*selection.named, *_matching(connection, selection)])
    return [name for name in tables if name.schema not in schemas], schemas


def _written(tables: list[TableName] | None, schemas: tuple[str, ...]) -> str:
    """Return the members of a publication as SQL has them."""
    if tables is None:
        return "all tables"
    # Not those which inherit from a table: they may have no key, and are none of its rows here.
    parts = [f"table {', '.join(f'only {name.quoted}' for name in tables)}"] if tables else []
    quoted = [TableName(schema, "").quoted.partition(".")[0] for schema in schemas]
    return ", ".join([*parts, *(f"tables in schema {schema}" for schema in quoted)])


def lacks_root(connection: Connection, name: str, oid: int) -> bool:
    """Return True if a table is partitioned, and a publication has the partitions of such tables instead of them."""
    return query(connection, _LACKS_ROOT, oid, name) == [(True,)]


def check_has(connection: Connection, name: str, table: TableName) -> None:
    """Check that a publication has a table."""
    oid = oid_of(connection, table)
    if members(connection, name, oid):
        return
    if not _exists(connection, name):
        raise SourceError(f"publication {name!r} is gone: the stream lacks changes", hint=ANEW)
    if lacks_root(connection, name, oid):
        raise SourceError(
            f"publication {name!r} has the partitions of {table}, and not the table itself",
            hint=f"alter publication {name} set ({_VIA_ROOT})",
        )
    raise SourceError(
        f"publication {name!r} does not have table {table}",
        hint=f"alter publication {name} add table {table.quoted}; changes made before are not in the stream",
    )


def check_sent(name: str, table: Table, is_keyed: bool) -> None:
    """Check that the stream has all changes of a table, and all that these need.

    Args:
        is_keyed: True if rows are found by the table's key.

    Raises:
        SourceError: If it lacks operations, rows, columns or a part of the key.
    """
    if table.membership and not table.membership.whole:
        raise SourceError(
            f"publication {name!r} leaves out operations: table {table.name} would miss changes",
            hint=f"alter publication {name} set (publish = 'insert, update, delete, truncate')",
        )
    if table.membership and table.membership.filtered:
        raise SourceError(
            f"publication {name!r} has only some rows of table {table.name}: the load would have all of them",
            hint="publish the table without a row filter, and filter the stream: .filter_expr(…)",
        )
    if lacking := [column.name for column in table.unsent if not column.generated]:
        raise SourceError(
            f"publication {name!r} has only some columns of table {table.name}: it lacks {lacking[0]!r}",
            hint="publish the table without a list of columns, and drop them from the stream: .drop(…)",
        )
    generated = [column.name for column in table.unsent if column.key is not None]
    if is_keyed and generated:
        raise SourceError(
            f"table {table.name}: its key has the generated column {generated[0]!r}, which publication {name!r} does "
            "not send: rows can't be told apart",
            hint=f"alter table {table.name.quoted} replica identity using index …, an index without it; on PostgreSQL "
            f"18 or newer also: alter publication {name} set ({_STORED})",
        )
