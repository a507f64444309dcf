"""The slot: created after the publication, recorded in the source's state, checked at each start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from psycopg2.extensions import connection as Connection

from volley.capture.segments import SegmentChain
from volley.connectors.postgres.connection import identify, lsn_number, lsn_text, query
from volley.connectors.postgres.settings import ANEW, ServerAddress
from volley.errors import SourceError
from volley.storage.remembered import Record
from volley.storage.state_formats import SLOT

__all__ = ["Origin", "check_position", "ensure_slot", "origin_record"]

_SLOT = """
    select plugin, database, active_pid, wal_status, confirmed_flush_lsn::text, restart_lsn::text
    from pg_replication_slots where slot_name = %s
"""


@dataclass(frozen=True)
class Origin:
    """Where a job's changes begin: kept in the source's state."""

    system: int
    timeline: int
    position: int  # the position at which the slot was created; 0 = it is about to be


def ensure_slot(server: ServerAddress, connection: Connection, name: str, state: str) -> Origin:
    """Return where the slot begins; create it in a job's first run.

    Raises:
        SourceError: If the slot is another's, is gone, or belongs to another server.
    """
    system, timeline = identify(server)
    record = origin_record(state)
    origin = record.read()
    slot = query(connection, _SLOT, name)
    if origin is None and slot:
        raise SourceError(
            f"slot {name!r} exists, and this checkpoint has read nothing from it",
            hint=f"if no other job needs it: select pg_drop_replication_slot('{name}'); else name another slot",
        )
    if origin is not None and origin.position:
        _check_origin(origin, Origin(system, timeline, 0), name, bool(slot))
        _check_slot(connection, name, slot)
        return origin
    # The record comes first: a slot without a record would hold the server's log for ever.
    record.write(asdict(Origin(system, timeline, 0)))
    if slot:
        query(connection, "select pg_drop_replication_slot(%s)", name)
    rows = query(connection, "select lsn::text from pg_create_logical_replication_slot(%s, 'pgoutput')", name)
    origin = Origin(system, timeline, lsn_number(rows[0][0]))
    record.write(asdict(origin))
    return origin


def origin_record(state: str) -> Record[Origin]:
    """Return the record of where a source's slot begins."""
    return Record(f"{state}/slot.json", SLOT, lambda values: Origin(**values))


def _check_origin(origin: Origin, now: Origin, name: str, is_there: bool) -> None:
    if origin.system != now.system:
        raise SourceError(
            f"slot {name!r} was on server {origin.system}, this is server {now.system}: another cluster", hint=ANEW
        )
    if origin.timeline != now.timeline:
        raise SourceError(
            f"the server's timeline is {now.timeline}, slot {name!r} was made on timeline {origin.timeline}: it was "
            f"restored from a backup or a standby was promoted, {'' if is_there else 'the slot is not there, '}and "
            "changes may be gone",
            hint=ANEW,
        )


def _check_slot(connection: Connection, name: str, slot: list[tuple[Any, ...]]) -> None:
    ((database,),) = query(connection, "select current_database()")
    if not slot:
        raise SourceError(f"slot {name!r} is gone: the changes since the last run are lost", hint=ANEW)
    plugin, slot_database, _, status, _, _ = slot[0]
    if plugin != "pgoutput" or slot_database != database:
        raise SourceError(
            f"slot {name!r} is of plugin {plugin!r} and database {slot_database!r}: it was made anew by another",
            hint=ANEW,
        )
    if status == "lost":
        raise SourceError(
            f"slot {name!r} was invalidated: it held more of the log than max_slot_wal_keep_size allows, and the "
            "server has removed changes that were not read",
            hint=f"{ANEW}; raise max_slot_wal_keep_size",
        )


def check_position(connection: Connection, name: str, chain: Callable[[], SegmentChain]) -> SegmentChain:
    """Return how far the segments reach, once the slot is ours; compare it with what the server was told.

    Raises:
        SourceError: If the server was told that more was read than the segments have: those changes are gone.
    """
    confirmed = lsn_number(query(connection, _SLOT, name)[0][4])
    # A dying receiver may have added a segment and acknowledged it after the first listing: list after the query.
    now = chain()
    if confirmed > now.told:
        raise SourceError(
            f"the changes between {lsn_text(now.told)} and {lsn_text(confirmed)} are gone: another reader of slot "
            f"{name!r} took them, or the slot was made anew",
            hint=ANEW,
        )
    return now
