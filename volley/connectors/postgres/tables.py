"""Tables as PostgreSQL's catalog describes them: their columns, replica identity, the files they are stored in."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa
from psycopg2.extensions import connection as Connection

from volley.capture.selection import TableName
from volley.connectors.postgres.catalog import GENERATED_SINCE, Member, Membership, PrintedType, members, printed_types
from volley.connectors.postgres.connection import query
from volley.connectors.postgres.messages import TABLE, Relation
from volley.connectors.postgres.settings import ANEW
from volley.connectors.postgres.types import TableColumn
from volley.errors import SourceNotFoundError

__all__ = ["StoredFile", "Table", "describe", "describe_all", "described", "oid_of", "table_of"]

_OID = """
    select c.oid::bigint from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relname = %s
"""
_TABLES = """
    select c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relreplident::text,
        array(
            select attnum from pg_attribute where attrelid = c.oid and attnum > 0 and attisdropped order by attnum
        )
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = any(%s::bigint[]::oid[])
"""
# A partition that was made as one has an entry in pg_inherits of the same transaction as its row type.
_FILES = """
    with members as (
        select root, relid::oid as oid from unnest(%(oids)s::bigint[]::oid[]) root, pg_partition_tree(root)
        union select root, root from unnest(%(oids)s::bigint[]::oid[]) root
    )
    select m.root::bigint,
        c.oid::bigint, c.relfilenode::bigint, c.xmin::text::bigint, coalesce(i.xmin::text <> t.xmin::text, false)
    from members m join pg_class c on c.oid = m.oid
    left join pg_inherits i on i.inhrelid = c.oid left join pg_type t on t.typrelid = c.oid
    where c.relkind = 'r' or c.oid <> m.root order by m.root, c.oid
"""
# Behind the columns of its key an index has those that it includes.
_COLUMNS = """
    with recursive typed(relation, number, type, modifier) as (
        select attrelid, attnum, atttypid, atttypmod from pg_attribute
        where attrelid = any(%(oids)s::bigint[]::oid[]) and attnum > 0 and not attisdropped
        union all
        select c.relation, c.number, t.typbasetype, greatest(c.modifier, t.typtypmod)
        from typed c join pg_type t on t.oid = c.type where t.typtype = 'd'
    )
    select c.relation::bigint, a.attname, a.attnum, c.type::bigint, c.modifier,
        case r.relreplident when 'n' then null else k.place end, a.atthasmissing, a.attgenerated::text,
        a.atttypid::bigint
    from typed c join pg_type t on t.oid = c.type and t.typtype <> 'd'
    join pg_attribute a on a.attrelid = c.relation and a.attnum = c.number
    join pg_class r on r.oid = a.attrelid
    left join pg_index i on i.indrelid = a.attrelid and i.indimmediate
        and case r.relreplident when 'i' then i.indisreplident else i.indisprimary end
    left join lateral unnest(i.indkey::smallint[]) with ordinality k(number, place)
        on k.number = a.attnum and k.place <= i.indnkeyatts
    order by c.relation, a.attnum
"""
_TYPES = """
    with recursive typed(number, type, modifier) as (
        select number, type::oid, modifier
        from unnest(%(types)s::bigint[], %(modifiers)s::int[]) with ordinality as given(type, modifier, number)
        union all
        select c.number, t.typbasetype, greatest(c.modifier, t.typtypmod)
        from typed c join pg_type t on t.oid = c.type where t.typtype = 'd'
    )
    select c.number, c.type::bigint, c.modifier from typed c join pg_type t on t.oid = c.type and t.typtype <> 'd'
"""
_TEXT = 25
T = TypeVar("T")


@dataclass(frozen=True)
class StoredFile:
    """A file of a table: of the table itself, or of one of its partitions."""

    oid: int  # the oid of the table or partition
    number: int  # the file's number; a rewritten or truncated table has a new one
    writer: int  # the lower 32 bits of the id of the transaction that last wrote its entry in the catalog
    attached: bool  # True if it was a table of its own before it became a partition


@dataclass(frozen=True)
class Table:
    """A table, as its catalog has it now, or as the stream has described it."""

    name: TableName
    oid: int  # its oid; a table that is made again has a new one
    columns: tuple[TableColumn, ...]  # the columns that the stream sends
    kind: str = "r"  # "r" = an ordinary table, "p" = a partitioned one, …
    persistence: str = "p"  # "p" = its changes are in the log
    # What an old row has: "d" = the primary key, "i" = an index's columns, "f" = all columns, "n" =
    # nothing.
    identity: str = "d"
    files: tuple[StoredFile, ...] = ()
    gone: tuple[int, ...] = ()  # the numbers of the columns that it had once
    # The columns that the stream does not send: generated ones, or those that a publication leaves out.
    unsent: tuple[TableColumn, ...] = ()
    membership: Membership | None = None  # how it is in the publication; None = it is not, or that is not known
    printed: tuple[PrintedType, ...] = ()  # the types that its columns print by

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a row: the primary key, or those of the identity's index; empty = none."""
        keys = [column for column in self.columns if column.key is not None]
        return tuple(column.name for column in sorted(keys, key=lambda column: column.key or 0))

    @property
    def anew(self) -> str:
        return ANEW

    @property
    def with_whole_rows(self) -> str:
        return f"alter table {self.name.quoted} replica identity full"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of its rows. All columns are nullable: a deleted row has only its keys."""
        return pa.schema([(column.name, column.data_type) for column in self.columns])

    def with_types(self, columns: Iterable[TableColumn]) -> Table:
        """Return it with the types that other columns of the names of its own have."""
        others = {column.name: column for column in columns}
        pairs = [(column, others.get(column.name, column)) for column in self.columns]
        return replace(
            self, columns=tuple(replace(own, type=other.type, modifier=other.modifier) for own, other in pairs)
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Table:
        """Return the table that `to_json` wrote."""
        # What came with a later version, a job's older state lacks.
        membership = values.get("membership")
        parts = {
            "name": TableName(**values["name"]),
            "columns": tuple(TableColumn(**column) for column in values["columns"]),
            "files": tuple(StoredFile(**file) for file in values["files"]),
            "gone": tuple(values["gone"]),
            "unsent": tuple(TableColumn(**column) for column in values.get("unsent", ())),
            "membership": membership and Membership.from_json(membership),
            "printed": tuple(map(PrintedType.from_json, values.get("printed", ()))),
        }
        return cls(**{**values, **parts})

    def to_message(self) -> bytes:
        """Return the message that tells the table's form to those who decode its changes."""
        form = Table(self.name, self.oid, self.columns, self.kind, self.persistence, self.identity)
        return struct.pack(">BI", TABLE, self.oid) + json.dumps(form.to_json()).encode()


def table_of(message: bytes) -> Table:
    """Return the table of a message of `Table.to_message`."""
    return Table.from_json(json.loads(message[5:]))


def oid_of(connection: Connection, name: TableName) -> int:
    """Return a table's oid."""
    rows = query(connection, _OID, name.schema, name.table)
    if not rows:
        raise SourceNotFoundError(f"table {name} not found", hint="check schema and name; case counts")
    return int(rows[0][0])


def describe(connection: Connection, oid: int, publication: str) -> Table | None:
    """Return the description of a table; None if there is none of this oid."""
    return describe_all(connection, [oid], publication).get(oid)


def describe_all(connection: Connection, oids: Collection[int], publication: str) -> dict[int, Table]:
    """Return the descriptions of tables by their oids, in the order of these; those that are gone are left out."""
    oids = [*oids]
    rows = {oid: parts for oid, *parts in query(connection, _TABLES, oids)}
    columns = _by_oid(query(connection, _COLUMNS, oids=oids), TableColumn)
    files = _by_oid(query(connection, _FILES, oids=oids), StoredFile)
    only = oids[0] if len(oids) == 1 else None
    published = {member.oid: member for member in members(connection, publication, only)}
    printed = printed_types(connection, oids)
    tables = {}
    for oid in oids:
        if oid not in rows:
            continue
        schema, name, kind, persistence, identity, gone = rows[oid]
        member = published.get(oid)
        sent = _sent(connection, columns[oid], member)
        tables[oid] = Table(
            TableName(schema, name),
            oid,
            tuple(column for column in columns[oid] if column.name in sent),
            kind,
            persistence,
            identity,
            files=tuple(files[oid]),
            gone=tuple(gone),
            unsent=tuple(column for column in columns[oid] if column.name not in sent),
            membership=member.membership if member else None,
            printed=printed[oid],
        )
    return tables


def _by_oid(rows: Iterable[tuple[Any, ...]], make: Callable[..., T]) -> Mapping[int, list[T]]:
    """Return what is made of rows behind their first column, by that."""
    values = defaultdict[int, list[T]](list)
    for oid, *parts in rows:
        values[oid].append(make(*parts))
    return values


def _sent(connection: Connection, columns: Iterable[TableColumn], member: Member | None) -> Collection[str]:
    """Return the names of the columns that the stream sends, or would, if the job made the publication."""
    may_be_generated = connection.server_version >= GENERATED_SINCE
    if may_be_generated and member is not None and member.columns is not None:
        return member.columns
    # Older servers list generated columns, and never send them.
    generated = ("", "s") if may_be_generated else ("",)
    listed = None if member is None else member.columns
    return {
        column.name for column in columns if column.generated in generated and (listed is None or column.name in listed)
    }


def described(
    connection: Connection, relation: Relation, keys: tuple[str, ...], bases: Mapping[int, tuple[int, int]]
) -> Table:
    """Return a table in the form in which the stream sends its changes, which may be older than the catalog's.

    Args:
        bases: By the oids of domains the types below them, with their modifiers: a domain may be gone by now.
    """
    types = [column.type for column in relation.columns]
    modifiers = [column.modifier for column in relation.columns]
    resolved = {
        number: (data_type, modifier)
        for number, data_type, modifier in query(connection, _TYPES, types=types, modifiers=modifiers)
    }
    names = [column.name for column in relation.columns]
    if not set(keys) <= set(names):
        keys = tuple(column.name for column in relation.columns if column.is_identity)
    columns = []
    for number, (name, declared) in enumerate(zip(names, types, strict=True), 1):
        # The values of any other type that is gone by now are texts.
        data_type, modifier = resolved.get(number) or bases.get(declared, (_TEXT, -1))
        columns.append(TableColumn(name, 0, data_type, modifier, keys.index(name) if name in keys else None, False))
    return Table(TableName(relation.schema, relation.table), relation.oid, tuple(columns))
