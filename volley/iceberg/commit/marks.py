"""The marks of a job's epochs in a table: properties and snapshot summaries."""

from __future__ import annotations

import hashlib
import uuid

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from volley.epoch import Epoch

__all__ = [
    "BRANCH",
    "COMMIT",
    "EPOCH",
    "JOB",
    "MARKS",
    "OFFSETS",
    "QUERY",
    "epoch_before",
    "epoch_of",
    "queries_of",
    "snapshot_id_of",
]

EPOCH = "volley.epoch"
COMMIT = "volley.commit"
JOB = "volley.job"
OFFSETS = "volley.offsets"
BRANCH = "volley.branch"
QUERY = "volley.query-id"
# Table properties, each with a query's id behind it; they outlive the snapshots.
MARKS = (EPOCH, COMMIT, JOB, OFFSETS, BRANCH)


def epoch_of(table: Table, query_id: str, branch: str) -> int | None:
    """The last epoch of a query that is in `table`, by its property or, that failing, by the branch's snapshots.

    Args:
        table: A freshly loaded table.
        query_id: Spark's id of the query.
        branch: The branch the query writes to.
    """
    mark = table.properties.get(f"{EPOCH}.{query_id}")
    if mark is not None:
        return int(mark)
    return epoch_before(table, table.metadata.snapshot_by_name(branch), query_id)


def epoch_before(table: Table, head: Snapshot | None, query_id: str) -> int | None:
    """The last epoch of a query in a snapshot and those before it."""
    for snapshot in ancestors_of(head, table.metadata) if head else ():
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if summary.get(QUERY) == query_id:
            return int(summary[EPOCH])
    return None


def queries_of(table: Table, job: str) -> set[str]:
    """The ids of the queries with which a job has written to `table`, by its properties and its snapshots.

    Args:
        table: A freshly loaded table.
        job: The job's name.
    """
    prefix = f"{JOB}."
    marked = (name for name, value in table.properties.items() if name.startswith(prefix) and value == job)
    found = {name.removeprefix(prefix) for name in marked}
    summaries = (snapshot.summary.additional_properties for snapshot in table.metadata.snapshots if snapshot.summary)
    return found | {summary[QUERY] for summary in summaries if summary.get(JOB) == job and QUERY in summary}


def snapshot_id_of(table_uuid: uuid.UUID, epoch: Epoch) -> int:
    """A positive 63-bit id that two drivers with the same epoch share."""
    digest = hashlib.sha256(f"{table_uuid}/{epoch.query_id}/{epoch.number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1 or 1
