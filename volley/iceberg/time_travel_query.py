"""Names earlier states of a table as the sources of jobs, and the changes between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from volley.checks import Instant
from volley.errors import brief_methods
from volley.html_table import settings_html
from volley.iceberg.changes import Changes, changes_between
from volley.iceberg.config import IcebergSinkConfig, table_ref
from volley.iceberg.source import IcebergSource
from volley.iceberg.table import TableRef
from volley.iceberg.time_travel import IcebergTable

__all__ = ["TimeTravelQuery"]


@brief_methods
@dataclass(frozen=True, init=False)
class TimeTravelQuery:
    """Sources of earlier states of a table, for jobs, and what changed between them.

    Args:
        table: A `TableRef`, or the settings of a sink that writes to it.

    Raises:
        ConfigError: If `table` is neither.

    Example:
        >>> from volley import IcebergStorage, TableRef, TimeTravelQuery
        >>> query = TimeTravelQuery(TableRef("db", "events", IcebergStorage.Local("/tmp/lake")))
        >>> query.as_of_version(3051729675574597004)
        IcebergSource('db.events', mode=Snapshot(snapshot_id=3051729675574597004))
    """

    ref: TableRef

    def __init__(self, table: TableRef | IcebergSinkConfig) -> None:
        object.__setattr__(self, "ref", table_ref(table))

    def as_of_timestamp(self, timestamp: Instant) -> IcebergSource:
        """Return the source of the rows that were current at a time; see `IcebergSourceConfig.with_as_of`."""
        return IcebergTable(self.ref).as_of(timestamp).to_source()

    def as_of_version(self, version: int | str) -> IcebergSource:
        """Return the source of a snapshot, by its id or by the name of a branch or tag."""
        return IcebergTable(self.ref).at(version).to_source()

    def changes_between(self, start: int | None, end: int | None = None, keys: str | Sequence[str] = ()) -> Changes:
        """Return the changes of the rows after one snapshot up to another; see `volley.iceberg.changes_between`."""
        return changes_between(self.ref, start, end, keys)

    _repr_html_ = settings_html
