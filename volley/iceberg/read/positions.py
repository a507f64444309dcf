"""How far a table has been read: the offsets of an Iceberg source."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from volley.contracts.source import Offset

__all__ = ["Position"]

_TOTAL_FILES = "total-data-files"


@dataclass(frozen=True)
class Position:
    """A snapshot that has been read, or up to which of its files, in the order of their paths.

    Args:
        table: The table's uuid.
        snapshot: The snapshot's id; None = the table had none.
        sequence: Its sequence number, which orders files even when the snapshot has expired.
        live: The number of its data files, if known: while all of them are live, none was replaced since.
        scan: True if all of its files are read, not only those that it added.
        after: The path of the last file that has been read; None = all of them have been.
        committed_at: When the snapshot was committed, in milliseconds since 1970.
    """

    table: str
    snapshot: int | None = None
    sequence: int = 0
    live: int | None = 0
    scan: bool = False
    after: str | None = None
    committed_at: int = 0

    @classmethod
    def at_end(cls, table: Table, snapshot: Snapshot | None) -> Position:
        """Return the position behind all files of a snapshot; None = at the beginning of the table."""
        uuid = str(table.metadata.table_uuid)
        if snapshot is None:
            return cls(uuid)
        total = (snapshot.summary.additional_properties if snapshot.summary else {}).get(_TOTAL_FILES)
        # Unlike a manifest list, a summary is there also after the snapshot has expired. A total that is wrong, such as
        # DuckDB's, which never fall, proves nothing.
        live = int(total) if total and total.isdecimal() else None
        number = snapshot.sequence_number or 0
        return cls(uuid, snapshot.snapshot_id, number, live, committed_at=snapshot.timestamp_ms)

    def scanning(self, after: str | None = "") -> Position:
        """Return the position behind some files of a scan of the same snapshot; the default is its beginning."""
        return replace(self, scan=True, after=after)

    @classmethod
    def from_offset(cls, offset: Offset) -> Position:
        """Return the position that `to_offset` gave."""
        return cls(**offset)

    def to_offset(self) -> Offset:
        """Return the position as JSON values."""
        return asdict(self)

    def at_its_end(self) -> Position:
        """Return the position behind all files of the same snapshot."""
        return replace(self, after=None)

    def behind(self, path: str) -> Position:
        """Return the position behind one file of the same snapshot."""
        return replace(self, after=path)

    def is_with(self, other: Position) -> bool:
        """Return True if both are in the files of one snapshot, read in the same way."""
        return (self.snapshot, self.scan) == (other.snapshot, other.scan)
