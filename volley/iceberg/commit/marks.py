"""The marks of a job's epochs in a table: properties and snapshot summaries."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from volley.contracts.epoch import Epoch
from volley.iceberg.read.history import ancestors_of

__all__ = [
    "BRANCH",
    "COMMIT",
    "EPOCH",
    "EPOCHS",
    "JOB",
    "MAINTENANCE",
    "MARKS",
    "OFFSETS",
    "QUERY",
    "RUN",
    "dropped_with",
    "epoch_before",
    "epoch_of",
    "maintenance_summary",
    "queries_of",
    "run_mark",
    "snapshot_id_of",
    "snapshots_of_run",
]

EPOCH = "volley.epoch"
COMMIT = "volley.commit"
JOB = "volley.job"
OFFSETS = "volley.offsets"
BRANCH = "volley.branch"
QUERY = "volley.query-id"
MAINTENANCE = "volley.maintenance"
"""The action of a snapshot that only maintains the table, in its summary."""
EPOCHS = "volley.epochs"
"""The last epoch of each query in a snapshot and its ancestors, as JSON, in the summary of one that only maintains: the
snapshots that have the epochs may have expired."""
RUN = "volley.run"
"""A table property, followed by a query's id: the first epoch of the run that overwrites, and its snapshots so far."""
# Table properties, each followed by a query's id; they outlive the snapshots.
MARKS = (EPOCH, COMMIT, JOB, OFFSETS, BRANCH)


def epoch_of(table: Table, query_id: str, branch: str) -> int | None:
    """Return the last epoch of a query in `table`, by its property or, without it, the branch's snapshots."""
    mark = table.properties.get(f"{EPOCH}.{query_id}")
    if mark is not None:
        return int(mark)
    return epoch_before(table, table.metadata.snapshot_by_name(branch), query_id)


def epoch_before(table: Table, head: Snapshot | None, query_id: str) -> int | None:
    """Return the last epoch of a query in a snapshot and its ancestors."""
    return next((epoch for query, epoch in _epochs_before(table.metadata, head) if query == query_id), None)


def dropped_with(table: Table, branch: str, query_id: str) -> Snapshot | None:
    """Return the last snapshot of a query whose branch somebody has dropped, unless main has it; None without one.

    Main without a snapshot was set back to nothing, which jobs follow.
    """
    is_there = branch in (MAIN_BRANCH, *table.metadata.refs)
    if is_there or table.properties.get(f"{BRANCH}.{query_id}") != branch:
        return None
    known = {snapshot.snapshot_id for snapshot in ancestors_of(table.current_snapshot(), table.metadata)}
    own = [snapshot for snapshot in table.metadata.snapshots if _is_of(snapshot, query_id)]
    last = max(own, key=lambda snapshot: snapshot.sequence_number or 0, default=None)
    return None if last is None or last.snapshot_id in known else last


def _is_of(snapshot: Snapshot, query_id: str) -> bool:
    return snapshot.summary is not None and snapshot.summary.additional_properties.get(QUERY) == query_id


def maintenance_summary(action: str, metadata: TableMetadata, head: Snapshot | None) -> dict[str, str]:
    """Return the summary of a snapshot that only maintains a table."""
    epochs: dict[str, int] = {}
    for query, epoch in _epochs_before(metadata, head):
        epochs.setdefault(query, epoch)
    return {MAINTENANCE: action} | ({EPOCHS: json.dumps(epochs)} if epochs else {})


def _epochs_before(metadata: TableMetadata, head: Snapshot | None) -> Iterator[tuple[str, int]]:
    """Yield queries and epochs that a snapshot and its ancestors tell, the newest first."""
    for snapshot in ancestors_of(head, metadata):
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if QUERY in summary:
            yield summary[QUERY], int(summary[EPOCH])
        yield from json.loads(summary.get(EPOCHS, "{}")).items()


def queries_of(table: Table, job: str) -> set[str]:
    """Return the ids of the queries of a job that have written to `table`, by its properties and snapshots."""
    prefix = f"{JOB}."
    marked = (name for name, value in table.properties.items() if name.startswith(prefix) and value == job)
    by_property = {name.removeprefix(prefix) for name in marked}
    summaries = (snapshot.summary.additional_properties for snapshot in table.metadata.snapshots if snapshot.summary)
    return by_property | {summary[QUERY] for summary in summaries if summary.get(JOB) == job and QUERY in summary}


def snapshots_of_run(table: Table, epoch: Epoch) -> int:
    """Return how many snapshots the run of an epoch has committed to `table`; 0 for the epoch of an endless source."""
    first, _, snapshots = table.properties.get(f"{RUN}.{epoch.query_id}", "").partition(" ")
    return int(snapshots) if epoch.run is not None and first == str(epoch.run) else 0


def run_mark(table: Table, epoch: Epoch) -> dict[str, str]:
    """Return the property that counts the snapshots of the epoch's run, this epoch's among them."""
    if epoch.run is None:
        return {}
    return {f"{RUN}.{epoch.query_id}": f"{epoch.run} {snapshots_of_run(table, epoch) + 1}"}


def snapshot_id_of(table_uuid: uuid.UUID, epoch: Epoch, part: str = "") -> int:
    """Return a positive 63-bit snapshot id that is the same for every driver with this epoch.

    Args:
        part: Tells the snapshots of one epoch apart.
    """
    digest = hashlib.sha256(f"{table_uuid}/{epoch.query_id}/{epoch.number}{part}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1 or 1
