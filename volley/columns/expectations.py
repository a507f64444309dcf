"""Counts the rows that do not meet an expectation, and drops, rejects or passes them on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.compiled import as_array
from volley.columns.dictionaries import decode_rows
from volley.columns.expressions import compile_expression
from volley.columns.letters import blaming, only_column
from volley.columns.readable import json_of, readable_rows
from volley.contracts.rows import Tallies, note_unmet, tally
from volley.errors import ExpressionError, JobError
from volley.plan.nodes import Expect
from volley.types.arrow import type_name

__all__ = ["Outcome", "count_outcome", "lower_expectation"]

_ROWS, _FAILED, _UNKNOWN = "expected rows of ", "failed rows of ", "unknown rows of "


@dataclass(frozen=True)
class Outcome:
    """What has become of an expectation.

    Args:
        rows: The rows that it looked at.
        failed: Those for which its predicate was false.
        unknown: Those for which it was null; they don't count as failed.
    """

    rows: int = 0
    failed: int = 0
    unknown: int = 0

    @classmethod
    def of(cls, name: str, tallies: Tallies) -> Outcome:
        """Return what tasks have counted for the expectation of this name."""
        return cls(*(tallies.get(kind + name, 0) for kind in (_ROWS, _FAILED, _UNKNOWN)))

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(self.rows + other.rows, self.failed + other.failed, self.unknown + other.unknown)

    def exceeds(self, limit: float | None) -> bool:
        """Return True if more rows have failed than may: a whole number of rows, or a share of them; None = any."""
        most = self.rows * limit if isinstance(limit, float) else limit
        return most is not None and self.failed > most


def lower_expectation(node: Expect, schema: pa.Schema) -> tuple[Callable[[pa.RecordBatch], pa.RecordBatch], pa.Schema]:
    """Compile an expectation.

    Raises:
        ExpressionError: If its predicate is no condition, or does not fit the columns.
    """
    predicate, column = compile_expression(node.predicate, schema), only_column(node.predicate)
    if not (pa.types.is_boolean(predicate.type) or pa.types.is_null(predicate.type)):
        raise ExpressionError(
            f"an expectation takes a condition, but {node.predicate!r} is {type_name(predicate.type)}",
            hint="compare it with something",
        )

    def step(batch: pa.RecordBatch) -> pa.RecordBatch:
        with blaming(column=column):
            mask = as_array(predicate.evaluate(batch), batch.num_rows).cast(pa.bool_())
            failed = _counted(node.name, mask)
            return _without(node, batch, mask) if failed else batch

    return step, schema


def count_outcome(name: str, rows: int, failed: int) -> None:
    """Count what becomes of an expectation that another step checks."""
    tally(_ROWS + name, rows)
    if failed:
        tally(_FAILED + name, failed)


def _counted(name: str, met: pa.BooleanArray) -> int:
    """Count the outcome of rows; return how many have failed."""
    failed = len(met) - met.null_count - met.true_count
    tally(_ROWS + name, len(met))
    if failed:
        tally(_FAILED + name, failed)
    if met.null_count:
        tally(_UNKNOWN + name, met.null_count)
    return int(failed)


def _without(node: Expect, batch: pa.RecordBatch, met: pa.BooleanArray) -> pa.RecordBatch:
    """Return a batch without the rows that have failed, if these are to go.

    Raises:
        JobError: If a row goes to a dead letter.
    """
    if node.on_fail == "dead_letter":
        raise JobError(
            f"it does not meet {node.name!r}: {node.predicate!r} is false", hint="mend it, or change the expectation"
        )
    kept = met.fill_null(True)
    first = pc.index(kept, False).as_py()
    note_unmet(node.name, json_of(readable_rows(batch.slice(first, 1))[0]))
    return decode_rows(batch.filter(kept)) if node.on_fail == "drop" else batch
