"""Chaos: a job is killed, disturbed and started again until it has died often enough; then its rows are counted."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.chaos_job import BAD, config, load_table
from benchmarks.report import Report
from volley._failpoints import LOG, POINTS, TASK_POINTS, VARIABLE
from volley.iceberg import orphan_files, remove_orphan_files

SUMMARY = "rows lost and doubled after 200 kills and as many other faults, by a seed that repeats"

_ROOT = Path(__file__).parents[1]
_ROWS = 300
_AHEAD = 16
_RUN_SECONDS = 300
_AT_ONCE = timedelta(0)


@dataclass(frozen=True)
class Verdict:
    """What is left after the last run, which nothing disturbs.

    Args:
        seed: Repeats the schedule.
        kills: Drivers and Python workers that died by SIGKILL.
        faults: Other faults: lost answers, conflicts, vanished files, …
        runs: Starts of the job.
        epochs: Epochs in the table.
        expected: Rows that belong into the table and the dead letters, those of other writers too.
        found: Rows that are there.
        lost: Rows that are missing.
        doubled: Rows that are there more than once, or should not be there.
        orphans: Files that dead attempts have left, before maintenance has removed them; none is read.
        seconds: Wall time.
        kinds: How often each thing happened.
    """

    seed: int
    kills: int
    faults: int
    runs: int
    epochs: int
    expected: int
    found: int
    lost: int
    doubled: int
    orphans: int
    seconds: float
    kinds: dict[str, int]


@dataclass
class Chaos:
    """One campaign.

    Args:
        folder: An empty folder.
        seed: Of the schedule.
    """

    folder: Path
    seed: int
    runs: int = 0
    _files: int = 0
    _drivers: set[int] = field(default_factory=set)

    def run(self, kills: int) -> Verdict:
        """Go on until so many processes have been killed; then let the job finish, and count.

        Args:
            kills: Processes to kill, at least.
        """
        began, dice = time.monotonic(), random.Random(self.seed)
        (self.folder / "in").mkdir(parents=True)
        while self.deaths().total() < kills:
            self._feed(_next_epoch(self.folder) + _AHEAD)
            self._one_run(dice)
        undisturbed = self._start([])
        assert undisturbed.wait(_RUN_SECONDS) == 0, f"the last run failed undisturbed: see {self.folder / 'log'}"
        return self._verdict(time.monotonic() - began)

    def deaths(self) -> Counter[str]:
        """What was killed, and where."""
        lines = [line.split() for line in _lines(self.folder / "deaths")]
        return Counter(f"{'driver' if int(pid) in self._drivers else 'worker'} {point}" for pid, point in lines)

    def _feed(self, files: int) -> None:
        while self._files < files:
            first = self._files * _ROWS
            ids = pa.array(range(first, first + _ROWS), pa.int64())
            path = self.folder / "in" / f"{self._files:06}.parquet"
            pq.write_table(pa.table({"id": ids}), f"{path}.tmp")
            Path(f"{path}.tmp").rename(path)
            self._files += 1

    def _one_run(self, dice: random.Random) -> None:
        """One start of the job, with deaths planned for some epochs; a fault or the end of its input may end it too."""
        epoch = _next_epoch(self.folder)
        if dice.random() < 0.1 and self._forget_the_last_commit():
            epoch -= 1
        workers = [f"{dice.choice(TASK_POINTS)}@{epoch + ahead}" for ahead in range(_AHEAD) if dice.random() < 0.7]
        driver = f"{dice.choice((*POINTS, 'in-recovery'))}@{epoch + dice.randrange(_AHEAD)}"
        from_a_task, zombie = dice.random() < 0.2, dice.random() < 0.05
        points = [f"{dice.choice(TASK_POINTS)}@{epoch}"] if from_a_task else [*workers, driver]
        options = ["--seed", f"{self.seed}-{self.runs}", *(["--kill-driver"] if from_a_task else [])]
        if zombie:
            self._note("two drivers at once")
        for process in [self._start(points, *options) for _ in range(2 if zombie else 1)]:
            process.wait(_RUN_SECONDS)

    def _start(self, points: list[str], *options: str) -> subprocess.Popen[bytes]:
        deaths = {VARIABLE: ",".join(points), LOG: str(self.folder / "deaths")}
        command = [sys.executable, "-m", "benchmarks.chaos_job", str(self.folder), *options]
        self.runs += 1
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(command, cwd=_ROOT, env={**os.environ, **deaths}, stdout=log, stderr=log)
        self._drivers.add(process.pid)
        return process

    def _forget_the_last_commit(self) -> bool:
        log = self.folder / "checkpoints" / "chaos" / "commits"
        epochs = [int(path.name) for path in log.glob("[0-9]*")]
        if not epochs:
            return False
        (log / str(max(epochs))).unlink()
        (log / f".{max(epochs)}.crc").unlink(missing_ok=True)
        self._note("Spark's last commit forgotten")
        return True

    def _note(self, fault: str) -> None:
        with (self.folder / "faults").open("a") as log:
            log.write(f"{fault}\n")

    def _verdict(self, seconds: float) -> Verdict:
        ids = [number for number in range(self._files * _ROWS) if number % 7]
        good = Counter(number for number in ids if number % BAD != 3)
        good.update(map(int, _lines(self.folder / "rivals")))
        bad = Counter(number for number in ids if number % BAD == 3)
        table = load_table(self.folder).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
        letters = load_table(self.folder, "dead").scan(selected_fields=("payload",)).to_arrow()["payload"].to_pylist()
        pairs = ((good, Counter(table)), (bad, Counter(json.loads(letter)["id"] for letter in letters)))
        orphans = [path for name in ("events", "dead") for path in orphan_files(config(self.folder, name), _AT_ONCE)]
        deaths, faults = self.deaths(), Counter(_lines(self.folder / "faults"))
        return Verdict(
            seed=self.seed,
            kills=deaths.total(),
            faults=faults.total(),
            runs=self.runs,
            epochs=self._files,
            expected=sum(expected.total() for expected, _ in pairs),
            found=sum(found.total() for _, found in pairs),
            lost=sum((expected - found).total() for expected, found in pairs),
            doubled=sum((found - expected).total() for expected, found in pairs),
            orphans=len(orphans),
            seconds=round(seconds),
            kinds={**dict(sorted(deaths.items())), **dict(sorted(faults.items()))},
        )

    def tidy(self) -> int:
        """Remove the orphans and count the table's rows again: what is left is what was there."""
        for name in ("events", "dead"):
            remove_orphan_files(config(self.folder, name), _AT_ONCE)
        return sum(load_table(self.folder, name).scan().to_arrow().num_rows for name in ("events", "dead"))


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _next_epoch(folder: Path) -> int:
    """The epoch that follows the last one that Spark has planned."""
    offsets = (folder / "checkpoints" / "chaos" / "offsets").glob("[0-9]*")
    return max((int(path.name) for path in offsets), default=-1) + 1


def run(arguments: list[str]) -> None:
    """One campaign; ends with status 1 if a row was lost or doubled."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks chaos", description=SUMMARY)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="repeats a schedule; by default another one each time")
    asked = parser.parse_args(arguments)
    seed = random.randrange(1_000_000) if asked.seed is None else asked.seed
    print(f"chaos: seed {seed}, {asked.kills} kills, about {asked.kills // 6 + 1} minutes", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="volley-chaos-"))
    chaos = Chaos(folder, seed)
    verdict = chaos.run(asked.kills)
    report = Report("chaos", "what", "how often")
    for kind, count in verdict.kinds.items():
        report.row(kind, f"{count:,}")
    report.row("starts of the job", f"{verdict.runs:,}")
    report.row("epochs", f"{verdict.epochs:,}")
    report.row("rows expected", f"{verdict.expected:,}")
    report.row("rows found", f"{verdict.found:,}")
    report.row("rows lost", f"{verdict.lost:,}")
    report.row("rows doubled", f"{verdict.doubled:,}")
    report.row("files orphaned", f"{verdict.orphans:,}")
    report.note(verdict)
    report.print()
    if verdict.lost or verdict.doubled or chaos.tidy() != verdict.found:
        sys.exit(f"chaos: failed; the lake and the log are in {folder}")
    shutil.rmtree(folder)
