"""What a table costs its readers, as a value that prints, and as metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from volley.html_table import html_table, text_html
from volley.metrics.exposition import described, exposition, families

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["HealthFinding", "TableHealth"]

_MIB = 1 << 20


@dataclass(frozen=True)
class HealthFinding:
    """Something about a table that costs its readers, and what mends it.

    Args:
        what: What is found, with its numbers.
        mend: The command that mends it; None = there is none.
        python: The same in Python; None = nothing here mends it.
    """

    what: str
    mend: str | None = None
    python: str | None = None

    def __str__(self) -> str:
        way = self.mend or self.python
        return self.what if way is None else f"{self.what}: {way}"

    _repr_html_ = text_html


def _gauge(text: str) -> Any:
    return field(default=0, metadata={"gauge": text})


@dataclass(frozen=True)
class TableHealth:
    """What a table costs its readers, and what would mend it; prints as a few lines.

    Args:
        table: The table's dotted name.
        branch: The branch that was looked at.
        snapshot_id: Its last snapshot; None = it has none.
        rows: Rows in data files, also those that deletes delete.
        deleted_rows: Rows in files of deletes: that many rows at most are read in vain.
        data_files, data_bytes: The data files, and their size.
        small_files: Data files that `IcebergTable.compact` would rewrite, also for their deleted rows.
        delete_files, delete_bytes: Files of deletes, which each reader of their data files reads, too.
        manifests, metadata_bytes: The manifests, and their size.
        snapshots: All snapshots of the table.
        oldest_snapshot_seconds: The age of the oldest one.
        seconds_since_last_commit: The age of the last one; None = there is none.
        partitions: Partitions with data files.
        skew: The bytes of the largest partition, by those of the one in the middle; 1 = all are alike.
        orphan_files, orphan_bytes: Files that belong to no snapshot; None = nobody looked, as it lists all files.
        sizes: Data files by their size.
        findings: What should be mended, most costly first.

    Example:
        >>> health = TableHealth("db.events", "main", findings=(HealthFinding("40 small files", "volley compact"),))
        >>> health.is_healthy
        False
    """

    table: str
    branch: str
    snapshot_id: int | None = None
    rows: int = _gauge("Rows in data files, also those that deletes delete")
    deleted_rows: int = _gauge("Rows in files of deletes")
    data_files: int = _gauge("Data files")
    data_bytes: int = _gauge("Bytes of data files")
    small_files: int = _gauge("Data files that a compaction would rewrite")
    delete_files: int = _gauge("Files of deletes")
    delete_bytes: int = _gauge("Bytes of files of deletes")
    manifests: int = _gauge("Manifests of the last snapshot")
    metadata_bytes: int = _gauge("Bytes of the manifests of the last snapshot")
    snapshots: int = _gauge("Snapshots")
    oldest_snapshot_seconds: float = _gauge("Age of the oldest snapshot")
    seconds_since_last_commit: float | None = field(
        default=None, metadata={"gauge": "Age of the last snapshot; absent before the first"}
    )
    partitions: int = _gauge("Partitions with data files")
    skew: float = _gauge("Bytes of the largest partition, by those of the one in the middle")
    orphan_files: int | None = field(default=None, metadata={"gauge": "Files that belong to no snapshot"})
    orphan_bytes: int | None = field(default=None, metadata={"gauge": "Bytes of files that belong to no snapshot"})
    sizes: Mapping[str, int] = field(default_factory=dict, hash=False)
    findings: tuple[HealthFinding, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """True if nothing should be mended."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """Return it as a dict of JSON values."""
        return {**asdict(self), "is_healthy": self.is_healthy}

    def to_prometheus_format(self, prefix: str = "volley") -> str:
        """Return it in Prometheus' text format, as ``<prefix>_iceberg_table_…``, for a push or a file of an exporter.

        Raises:
            ConfigError: If the prefix is not valid in a metric's name.

        Example:
            >>> text = TableHealth("db.events", "main", small_files=40).to_prometheus_format()
            >>> 'volley_iceberg_table_small_files{branch="main",table="db.events"} 40.0' in text
            True
        """
        return exposition(self._collect, prefix)

    def _collect(self, prefix: str) -> Iterator[Metric]:
        labels = {"table": self.table, "branch": self.branch}
        return families(prefix, described(TableHealth, "table_"), [(labels, self)])

    def __str__(self) -> str:
        lines = [
            f"table {self.table}, branch {self.branch}: {self.rows:,} rows in {self.data_files:,} data files "
            f"({self.data_bytes / _MIB:,.1f} MiB), {self.delete_files:,} files of deletes, "
            f"{self.manifests:,} manifests, {self.snapshots:,} snapshots, {self.partitions:,} partitions",
            *(f"  {count:,} files {size}" for size, count in self.sizes.items() if count),
        ]
        verdict = ["healthy: nothing to mend"] if self.is_healthy else ["to mend:"]
        return "\n".join([*lines, *verdict, *(f"  {finding}" for finding in self.findings)])

    def _repr_html_(self) -> str:
        shown = {name: value for name, value in asdict(self).items() if name not in ("sizes", "findings")}
        shown["snapshot_id"] = None if self.snapshot_id is None else str(self.snapshot_id)
        return html_table({**shown, **self.sizes, "to mend": "; ".join(map(str, self.findings)) or None})
