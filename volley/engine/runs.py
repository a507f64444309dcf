"""The history of a job's runs: a small file a run, beside the checkpoints, which outlives them and kills."""

from __future__ import annotations

import hashlib
import logging
import posixpath
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from volley.engine.listeners import Listener
from volley.errors import StorageError
from volley.html_table import html_table
from volley.metrics.exposition import versions
from volley.metrics.figures import FinishedEpoch
from volley.metrics.status import JobStatus
from volley.plan.graph import JobGraph
from volley.storage.paths import filesystem
from volley.storage.remembered import Record
from volley.storage.state_formats import JOB_RUN
from volley.store.journal import NumberedFiles

__all__ = ["JobRun", "RunRecorder", "jobs_with_runs", "plan_hash", "runs_of"]

_log = logging.getLogger(__name__)
_FOLDER = ".runs"
_MOST_RUNS = 100
_MOST_EPOCHS = 1_000
_EVERY_SECONDS = 10.0
# A process that has not written for this long has died: it writes twelve times as often.
_SILENT = timedelta(minutes=2)


@dataclass(frozen=True)
class JobRun:
    """A run of a job, as its history has it.

    Args:
        number: Its number in the history, from 1.
        job: The job's name.
        state: As of `JobStatus`; ``"died"`` if its process ended without saying so.
        began, ended: When, in UTC; None while it runs. Of a run that died: when it last wrote.
        error, hint: Why it failed, and what to do; None if it did not.
        epochs, rows, rejected, files, bytes, restarts: As of `JobStatus`.
        versions: Of Volley and Python.
        plan: A short hash of the job's steps with their settings: another one means that the job was changed.
        recent: Its last 1,000 epochs, oldest first.
        status: The job's status when the run last wrote, as of `JobStatus.to_dict`.

    Example:
        >>> run = JobRun(1, "orders", "finished", datetime(2026, 11, 1, tzinfo=UTC), rows=300)
        >>> run.rows
        300
    """

    number: int
    job: str
    state: str
    began: datetime
    ended: datetime | None = None
    error: str | None = None
    hint: str | None = None
    epochs: int = 0
    rows: int = 0
    rejected: int = 0
    files: int = 0
    bytes: int = 0
    restarts: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    plan: str = ""
    recent: tuple[FinishedEpoch, ...] = field(default=(), repr=False)
    status: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def seconds(self) -> float:
        """How long it took, or takes so far."""
        return ((self.ended or datetime.now(UTC)) - self.began).total_seconds()

    def _repr_html_(self) -> str:
        shown = ("number", "job", "state", "began", "ended", "error", "epochs", "rows", "rejected", "restarts")
        return html_table({name: getattr(self, name) for name in shown})


class RunRecorder(Listener):
    """Writes the file of a run: when it begins, ends, and every ten seconds. A failure is logged, once.

    Args:
        checkpoint: The fsspec URL of the job's checkpoint.
        plan: Returns the hash of the job's steps, see `JobRun`.
        status: Returns the job's status.
    """

    def __init__(self, checkpoint: str, plan: Callable[[], str], status: Callable[[], JobStatus]) -> None:
        self._files = _files_of(checkpoint)
        self._plan = plan
        self._status = status
        self._epochs: deque[list[Any]] = deque(maxlen=_MOST_EPOCHS)
        self._job = ""
        self._number: int | None = None
        self._failed = False
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, job: str) -> None:
        """Begin to write, in a thread."""
        self._job = job
        self._thread = threading.Thread(target=self._keep, name=f"volley-{job}-history", daemon=True)
        self._thread.start()

    def add(self, epoch: FinishedEpoch) -> None:
        """Keep an epoch; it is written with the next ones."""
        self._epochs.append(_packed(epoch))

    def end(self, status: Callable[[], JobStatus]) -> None:
        """Write the last state, and stop writing.

        Args:
            status: Returns the status of the job that has ended.
        """
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._write(status)

    def _keep(self) -> None:
        self._write(self._status)
        while not self._ending.wait(_EVERY_SECONDS):
            self._write(self._status)

    def _write(self, status: Callable[[], JobStatus]) -> None:
        try:
            if self._number is None:
                self._number = self._next()
            _record(self._files, self._number).write(
                {
                    "updated": datetime.now(UTC).isoformat(),
                    "versions": versions(),
                    "plan": self._plan(),
                    # A list as long as its job: the epochs move by while it is written.
                    "epochs": list(self._epochs),
                    "status": status().to_dict(),
                }
            )
        except Exception as error:
            # A job goes on, and ends, without its history, also if a source or sink of the user's can't print itself.
            if not self._failed:
                _log.warning("%s: the history of its runs can't be written: %s", self._job, error)
            self._failed = True

    def _next(self) -> int:
        """Return the number of a new run; delete the oldest ones if there are too many."""
        numbers = self._files.numbers()
        for number in numbers[: max(0, len(numbers) - _MOST_RUNS + 1)]:
            self._files.delete(number)
        return numbers[-1] + 1 if numbers else 1


def plan_hash(graph: JobGraph) -> str:
    """Return a short hash of a job's steps with their settings."""
    # Each step once: the text of `describe` repeats what several streams continue.
    numbers = graph.numbers
    lines = (f"{node.label()} {[numbers[id(source)] for source in node.inputs]}" for node in graph.nodes)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def runs_of(checkpoint: str) -> list[JobRun]:
    """Return the runs of a job, oldest first; none if it never ran.

    Raises:
        StorageError: If the history can't be read, or a newer Volley wrote it.
    """
    files = _files_of(checkpoint)
    try:
        numbers = files.numbers()
        records = {number: _record(files, number).read() for number in numbers}
    except OSError as error:
        raise StorageError(
            f"the history below {files.url} can't be read: {error}", hint="check the folder's permissions"
        ) from error
    # One that was deleted meanwhile, as there are newer ones, is left out.
    there = {number: record for number, record in records.items() if record is not None}
    return [_run(number, record, is_last=number == max(there)) for number, record in there.items()]


def jobs_with_runs(checkpoints: str) -> list[str]:
    """Return the checkpoints of the jobs that have a history, by their fsspec URLs.

    Args:
        checkpoints: The folder with the checkpoints of all jobs.
    """
    folder = f"{checkpoints.rstrip('/')}/{_FOLDER}"
    files, path = filesystem(folder, {})
    if not files.exists(path):
        return []
    names = sorted(posixpath.basename(entry.rstrip("/")) for entry in files.ls(path, detail=False))
    return [f"{checkpoints.rstrip('/')}/{name}" for name in names]


def _files_of(checkpoint: str) -> NumberedFiles:
    folder, name = posixpath.split(checkpoint.rstrip("/"))
    return NumberedFiles(f"{folder}/{_FOLDER}/{name}", "{:06}.json")


def _record(files: NumberedFiles, number: int) -> Record[dict[str, Any]]:
    return Record(files.url_of(number), JOB_RUN, lambda values: dict(values))


def _run(number: int, record: Mapping[str, Any], is_last: bool) -> JobRun:
    status, updated = record["status"], datetime.fromisoformat(record["updated"])
    state = status["state"]
    goes_on = state in ("starting", "running", "restarting")
    if goes_on and (not is_last or datetime.now(UTC) - updated > _SILENT):
        state, goes_on = "died", False
    return JobRun(
        number,
        job=status["job"],
        state=state,
        began=datetime.fromisoformat(status["began"]),
        ended=None if goes_on else updated,
        error=status["reason"],
        hint=status["hint"],
        **{name: status[name] for name in ("epochs", "rows", "rejected", "files", "bytes", "restarts")},
        versions=record["versions"],
        plan=record["plan"],
        recent=tuple(map(_unpacked, record["epochs"])),
        status={**status, "state": state},
    )


def _packed(epoch: FinishedEpoch) -> list[Any]:
    return [*(getattr(epoch, name) for name in _EPOCH), epoch.ended and epoch.ended.isoformat(), epoch.phases]


_EPOCH = ("number", "rows", "rejected", "files", "bytes", "seconds", "skipped")


def _unpacked(values: Sequence[Any]) -> FinishedEpoch:
    *figures, ended, phases = values
    return FinishedEpoch(
        **dict(zip(_EPOCH, figures, strict=True)), ended=ended and datetime.fromisoformat(ended), phases=phases
    )
