"""Checks that a server and a table can be captured, before anything is changed on the server."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from psycopg2.extensions import connection as Connection

from volley.capture.rows import CHANGE, OPERATION, POSITION, SEQUENCE, UNCHANGED
from volley.capture.selection import TableName
from volley.connectors.postgres.connection import check_session, query
from volley.connectors.postgres.publication import check_partitions, check_sent
from volley.connectors.postgres.tables import Table
from volley.errors import SourceError

__all__ = ["check_changes", "check_server", "check_tables"]

_log = logging.getLogger(__name__)
_OLDEST = 130_000
_KINDS = ("r", "p")
_SETTINGS = """
    select current_setting('server_version_num')::int, current_setting('wal_level'), pg_is_in_recovery(),
        exists (select from pg_roles r where r.rolname in ('rds_replication', 'azure_pg_admin', 'cloudsqlreplica')
            and pg_has_role(current_user, r.oid, 'member'))
        or (select rolsuper or rolreplication from pg_roles where rolname = current_user),
        current_setting('max_replication_slots')::int, current_setting('max_slot_wal_keep_size', true),
        current_setting('server_encoding')
"""

_PARTITIONS = """
    select root::bigint, c.relname, case when c.relkind = 'f' then 'foreign' else 'unlogged' end
    from unnest(%s::bigint[]::oid[]) root, pg_partition_tree(root) t join pg_class c on c.oid = t.relid
    where t.isleaf and (c.relkind = 'f' or c.relpersistence <> 'p')
"""

_READABLE = """
    select m.root::bigint, n.nspname, c.relname, current_user, r.may_read, r.has_policies
    from (
        select root, relid::oid as oid from unnest(%(oids)s::bigint[]::oid[]) root, pg_partition_tree(root)
        union select root, root from unnest(%(oids)s::bigint[]::oid[]) root
    ) m join pg_class c on c.oid = m.oid join pg_namespace n on n.oid = c.relnamespace,
    lateral (select has_table_privilege(c.oid, 'select'), row_security_active(c.oid)) r(may_read, has_policies)
    where r.has_policies or not r.may_read order by m.root, c.oid = m.root desc, 2, 3
"""


def check_server(connection: Connection, slot: str) -> None:
    """Check the server's settings and the role's rights; warn if an unread slot could fill the server's disk."""
    check_session(connection)
    ((version, level, is_standby, may_replicate, most_slots, kept, encoding),) = query(connection, _SETTINGS)
    if version < _OLDEST:
        raise SourceError(f"the server is PostgreSQL {version // 10_000}", hint="13 or newer is needed")
    if level != "logical":
        raise SourceError(
            f"the server's wal_level is {level!r}: its log does not have the changes of rows",
            hint="alter system set wal_level = logical, then restart the server (on RDS: rds.logical_replication = 1)",
        )
    if is_standby:
        raise SourceError("the server is a standby, which has no slots of its own", hint="connect to the primary")
    if not may_replicate:
        ((role,),) = query(connection, "select current_user")
        raise SourceError(f"role {role!r} may not replicate", hint=f'alter role "{role}" replication')
    names = [name for (name,) in query(connection, "select slot_name from pg_replication_slots")]
    if slot not in names and len(names) >= most_slots:
        raise SourceError(
            f"all {most_slots} replication slots are taken: {', '.join(sorted(names))}",
            hint="drop one that is not needed, or raise max_replication_slots",
        )
    if encoding == "SQL_ASCII":
        _log.warning("the database's encoding is SQL_ASCII, which checks no text: one that is not UTF-8 stops the job")
    if kept == "-1":
        _log.warning(
            "max_slot_wal_keep_size is not set: while the job does not run, slot %s can fill the server's disk", slot
        )


def check_tables(connection: Connection, tables: Sequence[Table], is_loaded: bool) -> None:
    """Check that the changes of tables can be captured.

    Args:
        is_loaded: True if their rows are read, too, and not only their changes.
    """
    for table in tables:
        _check_kind(table)
    names = {table.oid: table.name for table in tables}
    for oid, partition, kind in query(connection, _PARTITIONS, [*names]):
        raise SourceError(
            f"table {names[oid]} has the {kind} partition {partition}, whose changes are not logged",
            hint="capture its other partitions, in a publication without publish_via_partition_root",
        )
    for oid, schema, relation, role, may_read, has_policies in query(connection, _READABLE, oids=[*names]):
        # Partitions are read one by one.
        name, part = names[oid], TableName(schema, relation)
        of = "" if part == name else f": {part.quoted} is a part of it"
        if not may_read:
            raise SourceError(f"the role may not read table {name}{of}", hint=f"grant select on {part.quoted} to it")
        if has_policies and is_loaded:
            raise SourceError(
                f"role {role!r} sees only those rows of table {name} that its row security lets it see{of}",
                hint=f'alter role "{role}" bypassrls',
            )


def _check_kind(table: Table) -> None:
    if table.kind not in _KINDS:
        kinds = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
        raise SourceError(
            f"{table.name} is {kinds.get(table.kind, 'not a table')}, which this source does not read",
            hint="name a table",
        )
    if table.persistence != "p":
        raise SourceError(
            f"table {table.name} is unlogged or temporary: its changes are not logged",
            hint="alter table … set logged",
        )


def check_changes(connection: Connection, publication: str, table: Table, is_keyed: bool, sequence: bool) -> None:
    """Check that the stream has all changes of a table, and that rows of the source can tell them."""
    check_sent(publication, table, is_keyed)
    if not table.columns:
        raise SourceError(f"table {table.name} has no columns", hint=f"exclude={table.name.setting!r}")
    if not is_keyed:
        return
    check_partitions(connection, table)
    # A changelog has the table's columns within structs.
    for name in (OPERATION, UNCHANGED, *((POSITION, CHANGE) if sequence else (SEQUENCE,))):
        if name in table.names:
            raise SourceError(
                f"table {table.name} has a column {name!r}, as the source has one of its own",
                hint=f"rename the column, or leave the table out: exclude={table.name.setting!r}; with changelog=True "
                "the table's columns stand apart",
            )
