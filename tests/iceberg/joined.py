"""A join with a table in a task of an epoch, without Spark; and what a table had at each time, without Volley."""

from __future__ import annotations

from datetime import UTC, datetime
from unittest.mock import patch

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of

from volley.columns.joins import lower_join
from volley.plan import nodes
from volley.task import joined_rows

__all__ = ["at_epoch", "history"]


def at_epoch(epoch: int, join: nodes.Node, stream: pa.Table) -> pa.Table:
    """Join the rows of a stream in a task of an epoch.

    Args:
        epoch: The epoch's number.
        join: The join, whose table is open.
        stream: The rows.
    """
    assert isinstance(join, nodes.Join)
    step, schema = lower_join(join, stream.schema)
    with patch.object(joined_rows, "task_context") as context:
        task = context.return_value
        task.getLocalProperty.return_value, task.taskAttemptId.return_value = str(epoch), epoch
        parts = [step(batch) for batch in stream.to_batches(max_chunksize=900)]
    return pa.Table.from_batches(parts, schema)


def history(table: Table) -> pa.Table:
    """Return the rows of each snapshot that led to the current one, with the times between which it was current."""
    snapshots = [*ancestors_of(table.current_snapshot(), table.metadata)][::-1]
    since = [datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC) for snapshot in snapshots]
    parts = []
    for snapshot, begin, end in zip(snapshots, since, [*since[1:], datetime(9000, 1, 1, tzinfo=UTC)], strict=True):
        rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        for name, time in (("since", begin), ("until", end)):
            rows = rows.append_column(name, pa.array([time] * len(rows), pa.timestamp("us", "UTC")))
        parts.append(rows)
    return pa.concat_tables(parts, promote_options="permissive")
