"""The pipelines of other tests on a cluster, unchanged but for the master's address; and hosts that die under them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from tests.cluster.standalone import HOSTS, Cluster
from tests.processes import RUN_SECONDS, plain_environment, said
from tests.recovery import remote_pipeline
from tests.recovery.remote import RemoteLake
from tests.recovery.runs import ROWS_PER_FILE, check_exactly_once, load, write_input
from tests.servers.seaweed import Seaweed
from tests.sinks import config_of
from volley.iceberg import orphan_files, remove_orphan_files

AT_ONCE = timedelta(0)
FILES = 2

# Its processes take half a minute to start.
pytestmark = pytest.mark.nightly


@dataclass(frozen=True)
class Done:
    """What one driver did on the cluster, in a folder of each job's own.

    Args:
        table: The table in the remote catalog.
        alive: The hosts whose Worker lived on.
        orphans: By job, the files that it said were left behind.
        log: What the driver told the user's terminal.
    """

    folder: Path
    table: str
    alive: list[str]
    orphans: dict[str, list[str]]
    log: str


def driver(cluster: Cluster, module: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A driver in a process of its own."""
    command = [sys.executable, "-m", module, *arguments]
    environment = plain_environment(**cluster.environment(), **more)
    done = subprocess.run(command, env=environment, timeout=RUN_SECONDS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def done(running: Cluster, seaweed: Seaweed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    folder = tmp_path_factory.mktemp("jobs")
    for name in ("plain", "executor", "host"):
        write_input(folder / name, FILES)
    remote_pipeline.write_input(folder / "s3", FILES)
    table = f"t{uuid.uuid4().hex}"
    arguments = (str(folder), running.master, seaweed.rest_uri, seaweed.s3_endpoint, table)
    ran = driver(running, "tests.cluster.jobs", *arguments)
    yield Done(folder, table, running.alive(), json.loads(ran.stdout), ran.stderr)
    running.heal()


def check_both_tables(folder: Path, files: int) -> None:
    """What the two sinks of the job with a fault must have."""
    check_exactly_once(folder, files)
    expected = [{"id": i, "name": f"row {i}"} for i in range(files * ROWS_PER_FILE)]
    assert load(folder, "db.first").scan().to_arrow().sort_by("id").to_pylist() == expected


def names(paths: list[str]) -> set[str]:
    return {Path(path).name for path in paths}


def unreferenced(folder: Path) -> set[str]:
    """The data files that are in no table."""
    tables = [load(folder, name) for name in ("db.first", "db.events")]
    used = {Path(file["file_path"]).name for table in tables for file in table.inspect.files().to_pylist()}
    return {path.name for path in (folder / "lake").rglob("*.parquet")} - used


def remove_orphans(folder: Path) -> set[str]:
    """What maintenance finds in both tables, and removes."""
    both = [config_of(folder, table) for table in ("first", "events")]
    found = [path for each in both for path in orphan_files(each, AT_ONCE)]
    assert [path for each in both for path in remove_orphan_files(each, AT_ONCE)] == found
    return names(found)


def test_only_the_master_changes(done: Done) -> None:
    check_exactly_once(done.folder / "plain", FILES)
    assert done.orphans["plain"] == []


def test_executors_write_to_s3_with_the_keys_sent_to_them(done: Done, seaweed: Seaweed) -> None:
    remote_pipeline.check_exactly_once(RemoteLake(seaweed, seaweed.rest_uri, done.table).table(), FILES)


def test_executors_never_open_the_catalog(done: Done, running: Cluster, seaweed: Seaweed) -> None:
    seen = running.seen.read_text()
    assert f"{seaweed.s3_endpoint.rpartition(':')[2]})" in seen
    assert f"{seaweed.rest_uri.rpartition(':')[2]})" not in seen
    assert "sqlite" not in seen


@pytest.mark.parametrize("lost", ["executor", "host"])
def test_what_dies_in_an_epoch_loses_nothing(done: Done, lost: str) -> None:
    folder = done.folder / lost
    check_both_tables(folder, FILES)
    left = unreferenced(folder)
    assert len(left) == 5  # the first sink's, of the attempt that died
    assert names(done.orphans[lost]) == left
    assert remove_orphans(folder) == left
    check_both_tables(folder, FILES)


def test_the_host_was_really_lost(done: Done) -> None:
    assert len(done.alive) == len(HOSTS) - 1


def test_the_terminal_shows_the_jobs_and_nothing_of_spark(done: Done) -> None:
    shown = [re.sub(r" ·.*| \d.*", "", line) for line in said(done.log)]
    finished = [f"{job}: finished" for job in ("recovery", "recovery", "remote")]
    assert shown == [*finished, *(["faults: dead attempts of epoch", "faults: finished"] * 2)]


def test_the_copy_of_a_task_that_hangs_wins(cluster: Cluster, tmp_path: Path) -> None:
    write_input(tmp_path, 1)
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.task.duration.threshold": "100ms",
    }
    asked = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    ran = driver(
        cluster, "tests.cluster.faults", str(tmp_path), cluster.master, PYSPARK_SUBMIT_ARGS=f"{asked} pyspark-shell"
    )
    check_both_tables(tmp_path, 1)
    left = unreferenced(tmp_path)
    assert len(left) == 5  # the first sink's, of the attempt that hung
    assert names(ran.stdout.split()) == left
    assert remove_orphans(tmp_path) == left
    check_both_tables(tmp_path, 1)
