"""The alert rules in docs/monitoring on real jobs that a real Prometheus scrapes: a minute of a rule is a second."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.processes import ROOT
from tests.servers.prometheus import Prometheus
from tests.waiting import wait_until
from volley import DataStream, Environment, Epoch, FileSink, FileSource, FunctionSink, Job, MemorySink, Restart

pytestmark = [pytest.mark.services, pytest.mark.nightly]
RULES = ROOT / "docs" / "monitoring" / "alerts.yml"
_SHORTER = {"m": "s", "h": "m"}


def in_seconds(rules: str) -> str:
    """The rules with a sixtieth of each duration, and of each bound in seconds."""
    parts = re.sub(r"\b(\d+)([mh])\b", lambda match: match[1] + _SHORTER[match[2]], rules)
    return re.sub(r"(_seconds > )(\d+)", lambda match: f"{match[1]}{int(match[2]) // 60}", parts)


class Jobs:
    """Jobs that run until the test ends, each over a folder of its own."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._folder = folder
        checkpoints = str(folder / "checkpoints")
        self._environment = Environment(spark=spark, checkpoint_dir=checkpoints, checkpoint_interval="300ms")
        self._closing = ExitStack()
        self.targets: list[str] = []

    def close(self) -> None:
        self._closing.close()

    def write(self, job: str, name: str, *lines: str, age: float = 0.0) -> None:
        """Give a job a file."""
        folder = self._folder / job
        folder.mkdir(exist_ok=True)
        hidden = folder / f".{name}"
        hidden.write_text("".join(f"{line}\n" for line in lines))
        os.utime(hidden, (time.time() - age, time.time() - age))
        hidden.rename(folder / name)

    def start(
        self, job: str, build: Callable[[DataStream], Any] | None = None, files: int | None = None, **more: Any
    ) -> Job:
        """Start a job over its folder, which writes to memory unless something else is built."""
        source = FileSource(str(self._folder / job), format="json", schema="id long", bounded=False)
        stream = self._environment.from_source(replace(source, max_files_per_epoch=files))
        built = stream.to_sink(MemorySink(job)) if build is None else build(stream)
        started = self._environment.start(job, built, metrics_port=0, **more)
        self._closing.callback(started.stop)
        assert started.metrics_url is not None
        self.targets.append(started.metrics_url.split("/")[2])
        return started


@pytest.fixture
def jobs(spark: SparkSession, tmp_path: Path) -> Iterator[Jobs]:
    with closing(Jobs(spark, tmp_path)) as jobs:
        yield jobs


def test_each_alert_fires_when_it_must_and_no_other(jobs: Jobs, tmp_path: Path) -> None:
    gate, good = tmp_path / "gate", json.dumps({"id": 1})

    def slow(row: dict[str, Any]) -> dict[str, Any]:
        wait_until(gate.exists, 600, "the gate")
        return row

    def refuse(rows: pa.Table, epoch: Epoch) -> None:
        raise OSError("no such database")

    for name in ("quiet", "gone", "hangs", "restarts", "bad"):
        jobs.write(name, "0.json", good)
    for number in range(600):
        jobs.write("behind", f"{number:03}.json", good, age=30)
    jobs.start("quiet")
    gone = jobs.start("gone")
    jobs.start(
        "bad", lambda stream: stream.to_sink(MemorySink("bad"), dead_letter=FileSink(f"{tmp_path}/letters", "json"))
    )
    names = {"quiet", "gone", "bad"}
    with ExitStack() as closing_servers:
        closing_servers.callback(gate.touch)
        jobs.start("behind", files=1)
        jobs.start("hangs", lambda stream: stream.map(slow).to_sink(MemorySink("hangs")))
        restart = Restart("always", limit=100, backoff="200ms")
        jobs.start("restarts", lambda stream: stream.to_sink(FunctionSink(refuse, on_driver=True)), restart=restart)
        prometheus = Prometheus(tmp_path / "prometheus", in_seconds(RULES.read_text()), jobs.targets)
        closing_servers.callback(prometheus.stop)
        wait_until(lambda: names <= prometheus.jobs("volley_iceberg_records_written_total > 0"), 60, "first rows")
        # Whatever is in trouble, these are not.
        assert {alert for alert in prometheus.firing() if alert[1] in names} == set()
        jobs.write("bad", "1.json", *["{"] * 20)
        gone.stop()
        expected = {
            ("VolleyJobIsGone", "gone"),
            ("VolleyJobCommitsNothing", "hangs"),
            ("VolleyEpochHangs", "hangs"),
            ("VolleyJobCommitsNothing", "restarts"),
            ("VolleyJobRestarts", "restarts"),
            ("VolleyCommitsFail", "restarts"),
            ("VolleyFallsBehind", "behind"),
            ("VolleyRowsFail", "bad"),
            ("VolleyManyRowsFail", "bad"),
        }
        fired: set[tuple[str, str]] = set()

        def all_fired() -> bool:
            fired.update(prometheus.firing())
            return fired >= expected

        with suppress(TimeoutError):
            wait_until(all_fired, 15, "the alerts")
        # Rows of an epoch that fails count as failed.
        assert fired - {("VolleyRowsFail", "restarts")} == expected
