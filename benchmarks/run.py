"""One run in a process of its own: what it is told, and what it measures."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import adopt_orphans, after, measured

if TYPE_CHECKING:
    from volley import Progress

Case = str | int | float  # a size, an expression, a catalog: only results of the same case are compared


class MissingPeerError(Exception):
    """A peer can't run here, and why."""


@dataclass(frozen=True)
class Result:
    """The figures of one peer, by its name in tables, in one case."""

    peer: str
    case: Case
    figures: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One run of one peer, and what it has found."""

    peer: str = ""  # its name on the command line
    label: str = ""  # its name in tables
    rows: int = 0  # how many to handle
    case: Case = ""  # the benchmark's case that is to run
    options: Mapping[str, Any] = field(default_factory=dict)  # the settings, and what is prepared for all runs
    folder: Path = Path()  # the run's own; it is deleted at the end
    results: list[Result] = field(default_factory=list)

    def measure(
        self, work: Callable[[], object], rows: int | None = None, case: Case | None = None, start: Path | None = None
    ) -> dict[str, Any]:
        """Run `work` and record what it costs from when the file `start` is there, None = at once; return the figures.

        A dictionary that it returns has figures of its own, and among them maybe ``rows``; more may be added later. The
        rows that it handles, and the case with which the result can be compared, are the run's by default.
        """
        figures = {"rows": self.rows if rows is None else rows, **measured(work, start)}
        figures["rows_per_second"] = figures["rows"] / figures["seconds"]
        figures["rows_per_cpu_second"] = figures["rows"] / figures["cpu_seconds"]
        figures["cpu_us_a_row"] = 1e6 / figures["rows_per_cpu_second"]
        self.results.append(Result(self.label, self.case if case is None else case, figures))
        return figures

    def measure_scan(self, batches: Callable[[], Iterable[Any]]) -> dict[str, Any]:
        """Read batches of Arrow to the last one, check that they have the run's rows, and record what it costs."""

        def work() -> None:
            rows = sum(batch.num_rows for batch in batches())
            assert rows == self.rows, f"{rows} rows, not {self.rows}"

        return self.measure(work)

    def measure_job(self, job: Callable[[], Progress], before: int = 0, rows_per_epoch: int = 1) -> None:
        """Run the job ``benchmark``, which has its checkpoints in the run's folder, and record what it costs.

        It is measured behind the rows `before`, whole epochs; 0 = its start is measured too.
        """

        def work() -> dict[str, Any]:
            seen = job()
            assert seen.rows == self.rows + before
            return {"epochs": seen.epochs, "files": seen.files, "mb": seen.bytes / 1e6}

        self.measure(work, start=after(self.folder / "checkpoints", before // rows_per_epoch))

    def measure_steady(self, query: Callable[[], dict[str, Any]]) -> None:
        """Measure a query of so many `epochs` as the option says, named ``benchmark``, behind those that warm up."""
        epochs, before = self.options["epochs"], self.options["before"]
        rows = int(self.rows * (epochs - before) / epochs)
        self.measure(query, rows=rows, start=after(self.folder / "checkpoints", before))

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
        """Call a function at the top of a module in a process and a folder of its own, with a run that is changed so.

        What this process does meanwhile is not measured. What is found is returned once that process and all that it
        leaves have ended; it is for the caller to keep.
        """
        told = {**vars(self), **changes}
        del told["folder"], told["results"]
        command = [python, "-c", "from benchmarks.run import child; child()", function.__module__, function.__name__]
        command.append(json.dumps(told, default=str))
        # The output ends with the last process that inherited it, so the next run starts on an idle machine.
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
        return [Result(**result) for result in json.loads(output.splitlines()[-1])]


def child() -> None:
    """Call the function that `apart` names, in this process; print what it finds, nothing if the peer is missing."""
    module, function, given = sys.argv[1:]
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="volley-bench-", ignore_cleanup_errors=True) as folder:
        run = Run(**json.loads(given), folder=Path(folder))
        try:
            getattr(import_module(module), function)(run)
        except MissingPeerError as reason:
            print(f"{run.label} skipped: {reason}", file=sys.stderr)
    print(json.dumps([asdict(result) for result in run.results]))
