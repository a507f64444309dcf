"""Sorts rows of dead letters that are read again: marks letters whose rows pass, keeps the others with a new reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from volley.columns.letters import REPLAYED, SCHEMA, Blame
from volley.contracts.rows import BadLetter, BadRow, LetterRows, PositionedBatch, tally
from volley.errors import message_of
from volley.task.counts import Passed
from volley.task.sorter import Sorter
from volley.task.tree import Failure

__all__ = ["ReplaySorter"]

_ROUTE = 0
"""A replay has one dead letter: the one that it reads."""


class ReplaySorter(Sorter):
    """Splits the rows of dead letters, and writes each letter again: marked as replayed, or with its new reason.

    The dead letter is a table that replaces letters by their key. A row gets to the sinks only that its letter names.
    """

    def _unreadable(self, row: BadRow) -> dict[str, Any]:
        assert isinstance(row, BadLetter)
        step = self._tree.root.brief if self._tree.root else None
        sinks = row.letter["sinks"] or self._all_sinks
        return {**row.letter, **self._fault(row.error, Blame(step, row.column), sinks)}

    def _outputs(
        self, rows: PositionedBatch, start: int, end: int, passed: list[Passed]
    ) -> tuple[list[tuple[int, pa.RecordBatch]], list[Failure]]:
        assert isinstance(rows, LetterRows)
        outputs, failures = super()._outputs(rows, start, end, passed)
        wanted = {number for number, sink in enumerate(self._sinks) if sink.name in rows.sinks}
        lacking = (replace(each, sinks=tuple(wanted.intersection(each.sinks))) for each in failures)
        return [(sink, batch) for sink, batch in outputs if sink in wanted], [each for each in lacking if each.sinks]

    def _passed(self, rows: PositionedBatch, start: int, end: int) -> None:
        assert isinstance(rows, LetterRows)
        letters = rows.letters.slice(start, end - start)
        tally(REPLAYED, letters.num_rows)
        if target := self._targets[_ROUTE]:
            now = pa.repeat(pa.scalar(datetime.now(UTC), SCHEMA.field(REPLAYED).type), letters.num_rows)
            target.write(letters.set_column(SCHEMA.get_field_index(REPLAYED), SCHEMA.field(REPLAYED), now))

    def _letter_of(self, rows: PositionedBatch, row: int, position: str, failures: Sequence[Failure]) -> dict[str, Any]:
        assert isinstance(rows, LetterRows)
        (letter,) = rows.letters.slice(row, 1).to_pylist()
        cause = failures[0].cause
        return {**letter, **self._fault(message_of(cause), self._blame(failures[0]), self._lacking(failures))}
