"""Compiles the steps that keep state by key."""

from __future__ import annotations

import pyarrow as pa

from volley.columns.aggregator import Aggregator
from volley.columns.first_rows import Deduplicator, Limiter
from volley.columns.operators import Operator
from volley.columns.series import SeriesOperator
from volley.columns.stream_joins import StreamJoiner
from volley.plan import keyed_nodes

__all__ = ["operator_of"]


def operator_of(step: keyed_nodes.Keyed, *schemas: pa.Schema) -> Operator:
    """Return a step compiled for the rows of its inputs, whose schemas are these.

    Raises:
        ExpressionError: If a column is unknown, or a type does not fit.
    """
    match step:
        case keyed_nodes.JoinStreams():
            return StreamJoiner(step, *schemas)
        case keyed_nodes.Series():
            return SeriesOperator(step, *schemas)
        case keyed_nodes.Deduplicate():
            return Deduplicator(step, *schemas)
        case keyed_nodes.Limit():
            return Limiter(step, *schemas)
    assert isinstance(step, keyed_nodes.Aggregate)
    return Aggregator(step, *schemas)
