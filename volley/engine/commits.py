"""Commits an epoch to its sinks: to each alone, or to several in one step if their targets take that."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.sink import Committer
from volley.engine.sinks import OpenSink
from volley.errors import CommitStateUnknownError, LayoutChangedError, VolleyError
from volley.task.failpoints import reach
from volley.telemetry.traces import Span

__all__ = ["Commits"]

_log = logging.getLogger(__name__)

Written = Sequence[tuple[OpenSink, Sequence[WriteResult]]]
"""Sinks that commit together, and what each task has written for each."""


@dataclass(frozen=True)
class Commits:
    """Commits the epochs of one job.

    Args:
        sinks: The job's sinks.
        letters: The sinks of its dead letters.
    """

    job: str
    sinks: Sequence[OpenSink]
    letters: Sequence[OpenSink]

    def commit(
        self,
        epoch: Epoch,
        results: Sequence[list[WriteResult]],
        due: Sequence[bool],
        landed: list[list[WriteResult]],
        replayed: int,
    ) -> None:
        """Commit an epoch to the sinks that lack it, dead letters first: a rejected row is never missing from both.

        Args:
            results: What each task has written, by the places of the sinks, those of dead letters last.
            due: By the same places, whether the sink lacks the epoch.
            landed: Takes the results that are committed.
            replayed: How many of the dead letters are those that were read again.

        Raises:
            VolleyError: If a commit failed; files that are known not to have landed are deleted.
        """
        places = [place for place, is_due in enumerate(due) if is_due]
        try:
            groups = self._groups(places)
        except VolleyError:
            self._abort(epoch, results, places)
            raise
        first = next((number for number, group in enumerate(groups) if not self._is_letters(group[0])), None)
        for number, group in enumerate(groups):
            if number == first:
                reach("between-commits", epoch.number)
            try:
                self._commit([(self._sink(place), results[place]) for place in group], epoch)
            except Exception:
                self._abort(epoch, results, chain(*groups[number + 1 :]))
                raise
            for place in group:
                landed[place] = results[place]
                if self._is_letters(place):
                    rejected = sum(result.rows for result in results[place]) - replayed
                    self._log_rejected(self._sink(place), epoch, rejected)

    def _abort(self, epoch: Epoch, results: Sequence[list[WriteResult]], places: Iterable[int]) -> None:
        for place in places:
            self._sink(place).committer.abort(epoch, results[place])

    def _sink(self, place: int) -> OpenSink:
        return (*self.sinks, *self.letters)[place]

    def _is_letters(self, place: int) -> bool:
        return place >= len(self.sinks)

    def _groups(self, places: Sequence[int]) -> list[list[int]]:
        """Return the places of sinks that commit together: dead letters alone first, then those with dead letters."""
        groups: list[tuple[object | None, list[int]]] = []
        for place in places:
            group = self._sink(place).committer.group
            known = next((others for other, others in groups if group is not None and other == group), None)
            if known is None:
                groups.append((group, [place]))
            else:
                known.append(place)
        return sorted(
            (group for _, group in groups), key=lambda group: [not self._is_letters(at(group)) for at in (min, max)]
        )

    def _log_rejected(self, sink: OpenSink, epoch: Epoch, rows: int) -> None:
        if rows:
            sink.metrics.record_failed(rows)
            text = "%s: %s bad rows of epoch %d are in %s"
            _log.warning(text, self.job, f"{rows:,}", epoch.number, sink.committer)

    def _commit(self, written: Written, epoch: Epoch) -> None:
        began = time.monotonic()
        try:
            _make_visible(written, epoch)
        except LayoutChangedError:
            # Don't count its rows: they are written again.
            for sink, results in written:
                sink.committer.abort(epoch, results)
            raise
        except Exception as error:
            is_known = isinstance(error, VolleyError) and not isinstance(error, CommitStateUnknownError)
            for sink, results in written:
                _count(sink, results)
                sink.metrics.record_commit(time.monotonic() - began, succeeded=False)
                sink.metrics.record_failed(sum(result.rows for result in results))
                if is_known:
                    sink.committer.abort(epoch, results)
            raise
        seconds = time.monotonic() - began
        for sink, results in written:
            _count(sink, results)
            if any(result.rows for result in results):
                sink.metrics.record_commit(seconds, succeeded=True)
                self._log_commit(sink.committer, epoch, results, seconds)

    def _log_commit(self, committer: Committer, epoch: Epoch, results: Sequence[WriteResult], seconds: float) -> None:
        fields = {
            "job": self.job,
            "epoch": epoch.number,
            "target": str(committer),
            "snapshot": committer.snapshot_id(epoch),
            "rows": sum(result.rows for result in results),
            "files": sum(result.files for result in results),
            "bytes": sum(result.bytes for result in results),
            "seconds": round(seconds, 3),
        }
        text = "%(job)s: epoch %(epoch)d is in %(target)s: %(rows)d rows, %(files)d files, committed in %(seconds).3f s"
        if fields["snapshot"] is not None:
            text += ", snapshot %(snapshot)d"
        _log.info(text, fields, extra=fields)


def _make_visible(written: Written, epoch: Epoch) -> None:
    parts = [(sink.committer, results) for sink, results in written]
    with Span("volley.commit.sink", {"volley.sink": ", ".join(str(committer) for committer, _ in parts)}):
        (first, results), *others = parts
        if others:
            first.commit_together(epoch, parts)
        else:
            first.commit(epoch, results)


def _count(sink: OpenSink, results: Sequence[WriteResult]) -> None:
    # `_log_rejected` counts dead letters, as failed rows.
    if sink.tasks is not None:
        for result in results:
            sink.metrics.record_write(result)
