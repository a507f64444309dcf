"""Checks that a server and a table can be captured, before anything is changed on the server."""

from __future__ import annotations

import logging

from psycopg2.extensions import connection as Connection

from volley.connectors.postgres.connection import check_session, query
from volley.connectors.postgres.identities import check_partitions
from volley.connectors.postgres.publication import check_sent
from volley.connectors.postgres.rows import OPERATION, SEQUENCE, UNCHANGED
from volley.connectors.postgres.tables import Table
from volley.errors import SourceError

__all__ = ["check_changes", "check_server", "check_table"]

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
    select c.relname, case when c.relkind = 'f' then 'foreign' else 'unlogged' end
    from pg_partition_tree(%s::oid) t join pg_class c on c.oid = t.relid
    where t.isleaf and (c.relkind = 'f' or c.relpersistence <> 'p')
"""

_READABLE = """
    select format('"%%s"."%%s"', replace(n.nspname, '"', '""'), replace(c.relname, '"', '""')), current_user,
        has_table_privilege(c.oid, 'select'), row_security_active(c.oid)
    from (select relid from pg_partition_tree(%(oid)s::oid) union select %(oid)s::oid) m
    join pg_class c on c.oid = m.relid join pg_namespace n on n.oid = c.relnamespace order by c.oid = %(oid)s desc, 1
"""


def check_server(connection: Connection, slot: str) -> None:
    """Check the server's settings and the role's rights; warn if an unread slot could fill the server's disk.

    Raises:
        SourceError: If changes can't be captured from this server.
    """
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


def check_table(connection: Connection, table: Table, is_loaded: bool) -> None:
    """Check that a table's changes can be captured.

    Args:
        connection: A connection to the database.
        table: The table.
        is_loaded: True if its rows are read, too, and not only its changes.

    Raises:
        SourceError: If they can't.
    """
    name = table.name
    if table.kind not in _KINDS:
        kinds = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
        raise SourceError(
            f"{name} is {kinds.get(table.kind, 'not a table')}, which this source does not read", hint="name a table"
        )
    if table.persistence != "p":
        raise SourceError(
            f"table {name} is unlogged or temporary: its changes are not logged", hint="alter table … set logged"
        )
    for partition, kind in query(connection, _PARTITIONS, table.oid):
        raise SourceError(
            f"table {name} has the {kind} partition {partition}, whose changes are not logged",
            hint="capture its other partitions, in a publication without publish_via_partition_root",
        )
    for relation, role, may_read, has_policies in query(connection, _READABLE, oid=table.oid):
        # Partitions are read one by one.
        part = "" if relation == name.quoted else f": {relation} is a part of it"
        if not may_read:
            raise SourceError(f"the role may not read table {name}{part}", hint=f"grant select on {relation} to it")
        if has_policies and is_loaded:
            raise SourceError(
                f"role {role!r} sees only those rows of table {name} that its row security lets it see{part}",
                hint=f'alter role "{role}" bypassrls',
            )


def check_changes(connection: Connection, publication: str, table: Table, is_keyed: bool) -> None:
    """Check that the stream has all changes of a table, and that rows of the source can tell them.

    Args:
        connection: A connection to the database.
        publication: The publication, which may be about to be made.
        table: The table.
        is_keyed: True if rows are found by the table's key.

    Raises:
        SourceError: If they can't.
    """
    check_sent(publication, table, is_keyed)
    if not table.columns:
        raise SourceError(f"table {table.name} has no columns", hint=f"exclude={table.name.setting!r}")
    if not is_keyed:
        return
    check_partitions(connection, table)
    # A changelog has the table's columns within structs.
    for name in (OPERATION, SEQUENCE, UNCHANGED):
        if name in table.names:
            raise SourceError(
                f"table {table.name} has a column {name!r}, as the source has one of its own",
                hint=f"rename the column, or leave the table out: exclude={table.name.setting!r}; with changelog=True "
                "the table's columns stand apart",
            )
