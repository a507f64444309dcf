"""Runs work for many tables in a few threads, each with a catalog client of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition
from typing import TypeVar

from pyiceberg.catalog import Catalog

from volley.contracts.epoch import WriteResult
from volley.contracts.sink import ExecutorTask
from volley.iceberg.catalogs.answers import retry_reads
from volley.iceberg.table import TableRef

__all__ = ["Gathered", "Lane", "Lanes"]

T = TypeVar("T")


class Lane:
    """A thread with a catalog client: threads may not share clients, and a table always has the same one."""

    def __init__(self, ref: TableRef, name: str) -> None:
        self._ref = ref
        self._catalog: Catalog | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    @property
    def catalog(self) -> Catalog:
        """The catalog client, which connects at its first use; for work of this lane only."""
        if self._catalog is None:
            self._catalog = retry_reads(self._ref.load_catalog)
        return self._catalog

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run work after what was submitted before it."""
        return self._thread.submit(work)

    def close(self) -> None:
        """Let the thread end, and close the client."""
        if self._catalog is not None:
            self._thread.submit(self._catalog.close)
        self._thread.shutdown()
        self._catalog = None


class Lanes:
    """Some lanes, among which tables are spread by their numbers."""

    def __init__(self, ref: TableRef, count: int) -> None:
        self._lanes = [Lane(ref, f"volley-route-{number}") for number in range(count)]

    def __getitem__(self, table: int) -> Lane:
        return self._lanes[table % len(self._lanes)]

    def run(self, work: Sequence[tuple[int, Callable[[], T]]]) -> list[T | Exception]:
        """Run work of several tables at once; return its results, or the errors that it raised, in the same order."""
        futures = [self[table].submit(each) for table, each in work]
        outcomes: list[T | Exception] = []
        for future in futures:
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            outcomes.append(future.result() if error is None else error)
        return outcomes

    def close(self) -> None:
        """Let all threads end."""
        for lane in self._lanes:
            lane.close()


class Gathered:
    """Runs the ExecutorTasks of several threads together: one Spark job for all that wait while another one runs."""

    def __init__(self, run: Callable[[Sequence[ExecutorTask]], list[WriteResult]]) -> None:
        self._run = run
        self._changed = Condition()
        self._waiting: list[tuple[Sequence[ExecutorTask], Future[list[WriteResult]]]] = []
        self._running = False

    def __call__(self, tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
        """Run tasks, with others that wait, and return their results in the same order."""
        future: Future[list[WriteResult]] = Future()
        with self._changed:
            self._waiting.append((tasks, future))
            self._changed.wait_for(lambda: future.done() or not self._running)
            if future.done():
                return future.result()
            self._running, batch = True, self._waiting
            self._waiting = []
        try:
            self._run_all(batch)
        finally:
            with self._changed:
                self._running = False
                self._changed.notify_all()
        return future.result()

    def _run_all(self, batch: Sequence[tuple[Sequence[ExecutorTask], Future[list[WriteResult]]]]) -> None:
        try:
            results = iter(self._run([task for tasks, _ in batch for task in tasks]))
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            # The fault may be of one table alone: don't let the others fail for it.
            for alone in batch:
                self._run_all([alone])
            return
        for tasks, future in batch:
            future.set_result([next(results) for _ in tasks])
