"""Whole jobs against a real catalog that fails in every epoch, goes away, or outlives them: each row lands once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.processes import plain_environment
from tests.recovery import remote_pipeline
from tests.recovery.remote import RemoteLake
from tests.services.conftest import SeaweedProcess
from tests.services.fault_proxy import (
    Answer,
    Fault,
    FaultProxy,
    Server,
    answer_with,
    expire_tokens,
    hold_answer,
    kill,
    lose_answer,
    lose_request,
    named,
)
from volley import CatalogAuthError, CatalogError, CommitStateUnknownError

ROWS_PER_FILE = 50
SEEDS = (1, 2)
BOTH = [*(answer_with(status) for status in (401, 419, 429, 500, 502, 503, 504)), lose_answer, lose_request]

pytestmark = pytest.mark.usefixtures("spark")


def write_input(folder: Path, files: int) -> None:
    (folder / "in").mkdir()
    for number in range(files):
        ids = pa.array(range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE), pa.int64())
        pq.write_table(pa.table({"id": ids, "name": [f"row {i}" for i in ids]}), folder / "in" / f"{number}.parquet")


def check_exactly_once(lake: RemoteLake, files: int) -> None:
    """Compare source and table row by row, the snapshots with the epochs, and the files with those referenced."""
    table = lake.table()
    expected = [{"id": i, "name": f"row {i}", "twice": 2 * i} for i in range(files * ROWS_PER_FILE)]
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    epochs = [snapshot.summary["volley.epoch"] for snapshot in table.snapshots() if snapshot.summary]
    assert epochs == [str(epoch) for epoch in range(files)]
    referenced = {task.file.file_path.removeprefix("s3://lake/") for task in table.scan().plan_files()}
    assert referenced <= set(lake.files())


class OneFaultPerEpoch:
    """Meets one request of each epoch after the first with the next fault: its commit, or the load before it.

    Args:
        proxy: Where the requests pass.
        path: The table's own address.
        schedule: Methods and faults, one for each epoch.
    """

    def __init__(self, proxy: FaultProxy, path: str, schedule: list[tuple[str, Fault]]) -> None:
        self._left = schedule
        self._next: tuple[str, Fault] | None = None
        for method in ("GET", "POST"):
            proxy.arm(self._meet(method), method, path, times=None)

    def _meet(self, method: str) -> Fault:
        def meet(server: Server) -> Answer | None:
            def noting() -> Answer:
                answer = server()
                if (method, answer.status) == ("POST", 200):
                    self._next = self._left.pop(0) if self._left else None
                return answer

            if self._next is None or self._next[0] != method:
                return noting()
            fault, self._next = self._next[1], None
            return fault(noting)

        return named("one fault per epoch", meet)

    @property
    def used_up(self) -> bool:
        return not self._left and self._next is None


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Answers are held until the test ends."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fault_in_every_epoch(
    remote: RemoteLake, proxy: FaultProxy, tmp_path: Path, released: threading.Event, seed: int
) -> None:
    chance = random.Random(seed)
    faults = [*BOTH, hold_answer(released)]
    possible = [("GET", fault) for fault in faults] + [("POST", fault) for fault in [*faults, answer_with(409)]]
    schedule = chance.sample(possible, 8)
    print(f"seed {seed}: {[(method, fault.__name__) for method, fault in schedule]}")
    faulty = OneFaultPerEpoch(proxy, remote.path, schedule)
    write_input(tmp_path, 9)
    remote_pipeline.main(tmp_path, remote)
    assert faulty.used_up
    check_exactly_once(remote, 9)


def test_killed_after_the_catalog_accepted_and_before_its_answer(
    remote: RemoteLake, proxy: FaultProxy, tmp_path: Path
) -> None:
    write_input(tmp_path, 3)
    where = [str(tmp_path), remote.server.s3_endpoint, proxy.uri, remote.table_name]
    command = [sys.executable, "-m", "tests.recovery.remote_pipeline", *where]
    started: list[subprocess.Popen[bytes]] = []
    proxy.arm(kill(lambda: started[0].pid), "POST", remote.path, skip=1)
    started.append(subprocess.Popen(command, env=plain_environment()))
    assert started[0].wait(240) == -signal.SIGKILL
    assert len(remote.table().snapshots()) == 2
    remote_pipeline.main(tmp_path, remote)
    check_exactly_once(remote, 3)


@pytest.mark.parametrize("status", [401, 419])
def test_a_token_that_expires_while_the_job_runs(
    remote: RemoteLake, proxy: FaultProxy, tmp_path: Path, status: int
) -> None:
    write_input(tmp_path, 3)

    def expire(server: Server) -> Answer:
        for method in ("GET", "POST"):
            proxy.arm(expire_tokens(proxy, status), method, remote.path, times=None)
        return server()

    proxy.arm(expire, "POST", remote.path)
    remote_pipeline.main(tmp_path, remote)
    answers = [exchange.client for exchange in proxy.asked("GET", remote.path)]
    assert status in answers
    check_exactly_once(remote, 3)


def test_credentials_withdrawn_while_the_job_runs(remote: RemoteLake, proxy: FaultProxy, tmp_path: Path) -> None:
    write_input(tmp_path, 3)
    proxy.arm(answer_with(401), "POST", remote.path, times=None, skip=1)
    with pytest.raises(CatalogAuthError, match=proxy.uri):
        remote_pipeline.main(tmp_path, remote)
    assert len(remote.table().snapshots()) == 1
    proxy.disarm()
    remote_pipeline.main(tmp_path, remote)
    check_exactly_once(remote, 3)


@pytest.mark.parametrize("landed", [True, False], ids=["after the commit", "before the commit"])
def test_a_catalog_that_goes_away_and_the_next_run(
    remote: RemoteLake, proxy: FaultProxy, tmp_path: Path, landed: bool
) -> None:
    write_input(tmp_path, 3)
    proxy.arm(proxy.lose_answer_and_refuse if landed else proxy.refuse_from_now, "POST", remote.path, skip=1)
    with pytest.raises(CommitStateUnknownError, match="may or may not"):
        remote_pipeline.main(tmp_path, remote)
    assert len(remote.table().snapshots()) == 1 + landed
    with pytest.raises(CatalogError, match=proxy.uri):
        remote_pipeline.main(tmp_path, remote)
    proxy.listen()
    remote_pipeline.main(tmp_path, remote)
    check_exactly_once(remote, 3)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[SeaweedProcess]:
    """A server that this test may stop."""
    (tmp_path / "server").mkdir()
    process = SeaweedProcess(tmp_path / "server")
    process.start()
    yield process
    process.stop()


def test_a_server_restarted_while_it_commits(own_server: SeaweedProcess, tmp_path: Path) -> None:
    write_input(tmp_path, 3)

    def commit_and_restart(server: Server) -> None:
        server()
        own_server.stop()
        own_server.start()

    with FaultProxy(own_server.server.rest_uri) as proxy:
        lake = RemoteLake(own_server.server, proxy.uri, f"t{uuid.uuid4().hex}")
        proxy.arm(commit_and_restart, "POST", lake.path, skip=1)
        remote_pipeline.main(tmp_path, replace(lake, timeout=60.0))
        check_exactly_once(lake, 3)


def test_a_server_gone_with_storage_and_all_and_the_next_run(own_server: SeaweedProcess, tmp_path: Path) -> None:
    write_input(tmp_path, 3)

    def stop(server: Server) -> None:
        own_server.stop()

    with FaultProxy(own_server.server.rest_uri) as proxy:
        lake = RemoteLake(own_server.server, proxy.uri, f"t{uuid.uuid4().hex}")
        proxy.arm(stop, "POST", lake.path, skip=1)
        with pytest.raises(CommitStateUnknownError, match="may or may not"):
            remote_pipeline.main(tmp_path, lake)
        own_server.start()
        remote_pipeline.main(tmp_path, lake)
        check_exactly_once(lake, 3)
