"""Decides which snapshots of a table an expiry removes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from volley.errors import ConfigError
from volley.iceberg.commit.hold import HOLD, is_held
from volley.iceberg.read.history import ancestors_of, snapshot_of
from volley.iceberg.schema.mapping import number_in

__all__ = ["Expired", "Rule"]

_MAX_AGE, _FIVE_DAYS = "history.expire.max-snapshot-age-ms", 5 * 24 * 60 * 60 * 1000
_MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
_MAX_REF_AGE = "history.expire.max-ref-age-ms"


@dataclass(frozen=True)
class Expired:
    """What an expiry removes from a table's metadata.

    Args:
        refs: The names of branches and tags that are older than their own setting or the table's allows.
    """

    snapshots: tuple[Snapshot, ...] = ()
    refs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.snapshots or self.refs)


@dataclass(frozen=True)
class Rule:
    """Which snapshots are kept, and which are not.

    Args:
        now: The time from which ages count.
        older_than: Snapshots of this time and later ones are kept; None = the table's setting.
        retain_last: The number of snapshots that each branch keeps in any case; None = the table's setting.
        ids: The ids of the snapshots to remove instead, whatever their age; None = by age.
        table: The table's dotted name, for messages.
        most: The most snapshots to remove by age, oldest first; None = all.
    """

    now: datetime
    older_than: datetime | None = None
    retain_last: int | None = None
    ids: Collection[int] | None = None
    table: str = ""
    most: int | None = None

    def expired(self, metadata: TableMetadata) -> Expired:
        """Return what the rule removes from a table's metadata.

        Raises:
            ConfigError: If one of the ids is a branch's last snapshot, or a tag's.
            SnapshotNotFoundError: If the table lacks one of them.
        """
        return _by_age(metadata, self) if self.ids is None else _by_id(metadata, self.ids, self.table)

    def cutoff(self, metadata: TableMetadata, ref: SnapshotRef | None = None) -> int:
        """Return the time, in milliseconds, from which on snapshots are kept; a branch's own setting comes first."""
        now = int(self.now.timestamp() * 1000)
        # What a hold has set is for other engines: Volley knows which snapshots are read.
        if ref and ref.max_snapshot_age_ms is not None and not is_held(metadata, ref):
            return now - ref.max_snapshot_age_ms
        if self.older_than is not None:
            return ceil(self.older_than.timestamp() * 1000)
        age = number_in(metadata.properties, _MAX_AGE, 0)
        return now - (_FIVE_DAYS if age is None else age)

    def keeps(self, metadata: TableMetadata, ref: SnapshotRef) -> int:
        """Return the number of snapshots that a branch keeps in any case; its own setting comes first."""
        if ref.min_snapshots_to_keep is not None:
            return ref.min_snapshots_to_keep
        return self.retain_last or number_in(metadata.properties, _MIN_SNAPSHOTS, 0) or 1


def _by_age(metadata: TableMetadata, rule: Rule) -> Expired:
    refs = {name: ref for name, ref in metadata.refs.items() if not _is_too_old(metadata, name, ref, rule)}
    held = {ref.snapshot_id for name, ref in refs.items() if name.startswith(HOLD)}
    kept: set[int] = set()
    referenced: set[int] = set()
    for ref in refs.values():
        kept.add(ref.snapshot_id)
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            chain = list(ancestors_of(metadata.snapshot_by_id(ref.snapshot_id), metadata))
            referenced.update(snapshot.snapshot_id for snapshot in chain)
            kept.update(_kept(chain, rule.keeps(metadata, ref), rule.cutoff(metadata, ref)))
            kept.update(_unpublished(chain, metadata.current_snapshot_id))
            kept.update(_unread(chain, held))
    # Snapshots that no branch leads to, such as rolled back ones, are kept by age alone.
    cutoff = rule.cutoff(metadata)
    loose = (snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in referenced)
    kept.update(snapshot.snapshot_id for snapshot in loose if snapshot.timestamp_ms >= cutoff)
    gone = sorted(
        (snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in kept),
        key=lambda snapshot: snapshot.timestamp_ms,
    )
    return Expired(tuple(gone[: rule.most]), tuple(sorted(set(metadata.refs) - set(refs))))


def _by_id(metadata: TableMetadata, ids: Collection[int], table: str) -> Expired:
    known = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    for snapshot_id in ids:
        if snapshot_id not in known:
            snapshot_of(metadata, snapshot_id, table)
        if names := sorted(name for name, ref in metadata.refs.items() if ref.snapshot_id == snapshot_id):
            raise ConfigError(
                f"snapshot {snapshot_id} of table {table} can't be expired: {', '.join(map(repr, names))} stands at it",
                hint="drop the tag or branch first; main keeps its last snapshot",
            )
    return Expired(tuple(snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in ids))


def _is_too_old(metadata: TableMetadata, name: str, ref: SnapshotRef, rule: Rule) -> bool:
    setting = number_in(metadata.properties, _MAX_REF_AGE, 0)
    max_age = setting if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    if name == MAIN_BRANCH or max_age is None or snapshot is None:
        return False
    return rule.now.timestamp() * 1000 - snapshot.timestamp_ms > max_age


def _unpublished(chain: list[Snapshot], main: int | None) -> list[int]:
    """Return the ids of a branch's snapshots after main's last one: without them it could not be published."""
    ids = [snapshot.snapshot_id for snapshot in chain]
    return ids[: ids.index(main)] if main in ids else []


def _unread(chain: list[Snapshot], held: Collection[int]) -> list[int]:
    """Return the ids of a branch's snapshots that a stream holds: one, and all later ones."""
    ids = [snapshot.snapshot_id for snapshot in chain]
    return ids[: max((number + 1 for number, id in enumerate(ids) if id in held), default=0)]


def _kept(chain: list[Snapshot], least: int, cutoff: int) -> Iterator[int]:
    """Yield the ids of a branch's snapshots, the last one first, up to the first that is old and not needed."""
    for number, snapshot in enumerate(chain):
        if number >= least and snapshot.timestamp_ms < cutoff:
            return
        yield snapshot.snapshot_id
