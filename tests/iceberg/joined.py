"""A join with a table in a task of an epoch, without Spark."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa

from volley.arrow.joins import lower_join
from volley.plan import nodes
from volley.task import joined_rows

__all__ = ["at_epoch"]


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
