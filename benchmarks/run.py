"""One run in a process of its own: what it is told, and what it measures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import after, measured

if TYPE_CHECKING:
    from volley import Progress

__all__ = ["Case", "Result", "Run"]

Case = str | int | float
"""A size, an expression, a catalog: only results of the same case are compared."""

# What a process in which a run is continued has of its own.
_OWN = ("folder", "results")


@dataclass(frozen=True)
class Result:
    """The figures of one peer, by its name in tables, in one case."""

    peer: str
    case: Case
    figures: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One run of one peer.

    Args:
        peer: Its name on the command line.
        label: Its name in tables.
        rows: How many rows to handle.
        case: The benchmark's case that is to run.
        options: The benchmark's settings, and what it has prepared for all runs.
        folder: The run's own; it is deleted at the end.
        results: What it has found.
    """

    peer: str = ""
    label: str = ""
    rows: int = 0
    case: Case = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = Path()
    results: list[Result] = field(default_factory=list)

    def measure(
        self,
        work: Callable[[], object],
        *,
        rows: int | None = None,
        case: Case | None = None,
        start: Path | None = None,
    ) -> dict[str, Any]:
        """Run `work` and record what it costs.

        Args:
            work: What runs; a dictionary that it returns has figures of its own, and among them maybe ``rows``.
            rows: Rows it handles while it is measured; None = the run's.
            case: With what the result can be compared; None = the run's.
            start: A file; the measurement begins when it appears. None = it begins at once.

        Returns:
            The figures, to which more may be added.
        """
        figures = {"rows": self.rows if rows is None else rows, **measured(work, start)}
        figures["rows_per_second"] = figures["rows"] / figures["seconds"]
        figures["rows_per_cpu_second"] = figures["rows"] / figures["cpu_seconds"]
        self.results.append(Result(self.label, self.case if case is None else case, figures))
        return figures

    def measure_scan(
        self, batches: Callable[[], Iterable[Any]], rows: int | None = None, case: Case | None = None
    ) -> dict[str, Any]:
        """Read batches of Arrow to the last one, and record what it costs.

        Args:
            batches: Returns them, with as many rows as are expected.
            rows: How many; None = the run's.
            case: With what the result can be compared; None = the run's.
        """
        expected = self.rows if rows is None else rows

        def work() -> None:
            read = sum(batch.num_rows for batch in batches())
            assert read == expected, f"{read} rows, not {expected}"

        return self.measure(work, rows=rows, case=case)

    def measure_job(self, job: Callable[[], Progress], before: int = 0, rows_per_epoch: int = 1) -> None:
        """Run the job ``benchmark``, which has its checkpoints in the run's folder, and record what it costs.

        Args:
            job: Runs it.
            before: Rows that it handles before it is measured, whole epochs; 0 = its start is measured too.
            rows_per_epoch: Rows of an epoch.
        """

        def work() -> dict[str, Any]:
            seen = job()
            assert seen.rows == self.rows + before
            return {"epochs": seen.epochs, "files": seen.files, "mb": seen.bytes / 1e6}

        self.measure(work, start=after(self.folder / "checkpoints", before // rows_per_epoch))

    def record(self, peer: str | None = None, case: Case | None = None, **figures: Any) -> None:
        """Record what the benchmark itself has measured; without a peer's name in tables or a case, under the run's."""
        self.results.append(Result(self.label if peer is None else peer, self.case if case is None else case, figures))

    def apart(
        self,
        function: Callable[[Run], None],
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
        **changes: Any,
    ) -> list[Result]:
        """Call a function in a process and a folder of its own; what this process does meanwhile is not measured.

        Args:
            function: It stands at the top of its module.
            environment: The process's environment variables; None = this one's.
            python: The Python that runs it.
            changes: What its run has other than this one.

        Returns:
            What it has found, once that process and all that it leaves have ended; it is for the caller to keep.
        """
        told = {name: value for name, value in vars(replace(self, **changes)).items() if name not in _OWN}
        command = [python, "-m", "benchmarks.child", function.__module__, function.__name__]
        command.append(json.dumps(told, default=str))
        # The output ends with the last process that inherited it, so the next run starts on an idle machine.
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
        return [Result(**result) for result in json.loads(output.splitlines()[-1])]
