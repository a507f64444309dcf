"""One cheap query that tells whether a look at the tables would find anything that the last one did not."""

from __future__ import annotations

from collections.abc import Collection

from psycopg2.extensions import connection as Connection

from volley.connectors.postgres.connection import query
from volley.connectors.postgres.membership import SCHEMAS_SINCE

__all__ = ["fingerprint"]

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


def fingerprint(connection: Connection, publication: str, tables: Collection[int]) -> int:
    """Return a number that changes with the publications, tables, partitions and types of a database.

    Args:
        connection: A connection to the database.
        publication: The publication.
        tables: The oids of the tables whose columns count.
    """
    schemas = _SCHEMAS if connection.server_version >= SCHEMAS_SINCE else ""
    sql = _FINGERPRINT.format(schemas=schemas)
    ((number,),) = query(connection, sql, publication=publication, tables=[*tables])
    return int(number)
