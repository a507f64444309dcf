"""Whole jobs against a real catalog that fails in every epoch, goes away, or outlives them: each row lands once."""

from __future__ import annotations

import random
import signal
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.drivers import Drivers
from tests.recovery.full_disk import ROOM
from tests.recovery.lake import Lake
from tests.recovery.remote import RemoteLake
from tests.recovery.remote_pipeline import check_exactly_once, run, write_input
from tests.servers.seaweed import SeaweedProcess
from tests.services.fault_proxy import (
    Answer,
    Fault,
    FaultProxy,
    Server,
    answer_as_s3,
    answer_with,
    expire_tokens,
    hold_answer,
    kill,
    lose_answer,
    lose_request,
    named,
)
from tests.tiers import some
from tests.waiting import wait_until
from volley import (
    CatalogAuthError,
    CatalogError,
    CommitStateUnknownError,
    Environment,
    IcebergSink,
    MemorySource,
    Reader,
    Restart,
    SourceContext,
    StorageAccessError,
    StorageError,
)

SEEDS = (1, 2)
BOTH = [*(answer_with(status) for status in (401, 419, 429, 500, 502, 503, 504)), lose_answer, lose_request]

pytestmark = pytest.mark.usefixtures("spark")


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


@pytest.mark.parametrize("seed", some(SEEDS))
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
    run(tmp_path, remote.config)
    assert faulty.used_up
    check_exactly_once(remote.table(), 9)


def test_killed_after_the_catalog_accepted_and_before_its_answer(
    drivers: Drivers, remote: RemoteLake, proxy: FaultProxy, tmp_path: Path
) -> None:
    write_input(tmp_path, 3)
    started: list[BaseProcess] = []
    proxy.arm(kill(lambda: started[0].pid or 0), "POST", remote.path, skip=1)
    started.append(drivers.start(run, tmp_path, remote.config))
    assert drivers.wait(started[0]) == -signal.SIGKILL
    assert len(remote.table().snapshots()) == 2
    run(tmp_path, remote.config)
    check_exactly_once(remote.table(), 3)


@pytest.mark.parametrize("status", some([401, 419]))
def test_a_token_that_expires_while_the_job_runs(
    remote: RemoteLake, proxy: FaultProxy, tmp_path: Path, status: int
) -> None:
    write_input(tmp_path, 3)

    def expire(server: Server) -> Answer:
        for method in ("GET", "POST"):
            proxy.arm(expire_tokens(proxy, status), method, remote.path, times=None)
        return server()

    proxy.arm(expire, "POST", remote.path)
    run(tmp_path, remote.config)
    answers = [exchange.client for exchange in proxy.asked("GET", remote.path)]
    assert status in answers
    check_exactly_once(remote.table(), 3)


def test_credentials_withdrawn_while_the_job_runs(remote: RemoteLake, proxy: FaultProxy, tmp_path: Path) -> None:
    write_input(tmp_path, 3)
    proxy.arm(answer_with(401), "POST", remote.path, times=None, skip=1)
    with pytest.raises(CatalogAuthError, match=proxy.uri):
        run(tmp_path, remote.config)
    assert len(remote.table().snapshots()) == 1
    proxy.disarm()
    run(tmp_path, remote.config)
    check_exactly_once(remote.table(), 3)


@pytest.mark.parametrize("landed", some([True, False]), ids=["after the commit", "before the commit"])
def test_a_catalog_that_goes_away_and_the_next_run(
    remote: RemoteLake, proxy: FaultProxy, tmp_path: Path, landed: bool
) -> None:
    write_input(tmp_path, 3)
    proxy.arm(proxy.lose_answer_and_refuse if landed else proxy.refuse_from_now, "POST", remote.path, skip=1)
    with pytest.raises(CommitStateUnknownError, match="may or may not"):
        run(tmp_path, remote.config)
    assert len(remote.table().snapshots()) == 1 + landed
    with pytest.raises(CatalogError, match=proxy.uri):
        run(tmp_path, remote.config)
    proxy.listen()
    run(tmp_path, remote.config)
    check_exactly_once(remote.table(), 3)


def referenced(lake: RemoteLake) -> list[str]:
    paths = (task.file.file_path for task in lake.table().scan().plan_files())
    return sorted(path.removeprefix("s3://lake/") for path in paths)


def test_a_storage_that_refuses_and_the_next_run(remote: RemoteLake, storage_proxy: FaultProxy, tmp_path: Path) -> None:
    write_input(tmp_path, 3)
    far = remote.through(storage_proxy)
    storage_proxy.arm(answer_as_s3(403, "AccessDenied"), "PUT", "/data/", times=None, skip=1)
    with pytest.raises(StorageAccessError, match="was refused"):
        run(tmp_path, far.config)
    assert remote.files() == referenced(remote)
    storage_proxy.disarm()
    run(tmp_path, far.config)
    check_exactly_once(remote.table(), 3)
    assert remote.files() == referenced(remote)


def test_a_storage_that_lost_what_it_had_accepted(
    remote: RemoteLake, storage_proxy: FaultProxy, tmp_path: Path
) -> None:
    write_input(tmp_path, 3)
    far = remote.through(storage_proxy)
    storage_proxy.arm(lambda server: Answer(200, {"ETag": '"lost"'}), "PUT", "/data/", skip=1)
    with pytest.raises(StorageError, match="is gone"):
        run(tmp_path, far.config)
    assert len(remote.table().snapshots()) == 1
    run(tmp_path, far.config)
    check_exactly_once(remote.table(), 3)
    assert remote.files() == referenced(remote)


def test_a_slow_storage(remote: RemoteLake, storage_proxy: FaultProxy, tmp_path: Path) -> None:
    def slowly(server: Server) -> Answer:
        threading.Event().wait(0.3)
        return server()

    write_input(tmp_path, 3)
    storage_proxy.arm(slowly, "PUT", "/", times=None)
    run(tmp_path, remote.through(storage_proxy).config)
    check_exactly_once(remote.table(), 3)


def test_a_disk_that_is_full_and_the_next_run(lake: Lake, tmp_path: Path) -> None:
    write_input(tmp_path, 1)
    room = tmp_path / "room"
    config = lake.config.with_properties({"py-io-impl": "tests.recovery.full_disk.FillingDisk", ROOM: str(room)})
    run(tmp_path, config)
    write_input(tmp_path, 3, first=1)
    room.write_text("300")
    with pytest.raises(StorageError, match="no space left"):
        run(tmp_path, config)
    assert len(lake.files()) == 1
    room.unlink()
    run(tmp_path, config)
    check_exactly_once(lake.table(), 3)
    assert len(lake.files()) == 3


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
        run(tmp_path, replace(lake, timeout=60.0).config)
        check_exactly_once(lake.table(), 3)


def test_a_server_gone_with_storage_and_all_and_the_next_run(own_server: SeaweedProcess, tmp_path: Path) -> None:
    write_input(tmp_path, 3)

    def stop(server: Server) -> None:
        own_server.stop()

    with FaultProxy(own_server.server.rest_uri) as proxy:
        lake = RemoteLake(own_server.server, proxy.uri, f"t{uuid.uuid4().hex}")
        proxy.arm(stop, "POST", lake.path, skip=1)
        with pytest.raises(CommitStateUnknownError, match="may or may not"):
            run(tmp_path, lake.config)
        own_server.start()
        run(tmp_path, lake.config)
        check_exactly_once(lake.table(), 3)


def test_a_job_waits_while_the_catalog_is_out_of_reach(
    remote: RemoteLake, proxy: FaultProxy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def come_back() -> None:
        wait_until(lambda: caplog.text.count("waiting for the catalog") > 1, 60, "the second attempt")
        proxy.listen()

    write_input(tmp_path, 3)
    # The commit of the second epoch lands, its answer is lost, and then nobody listens for a while.
    proxy.arm(proxy.lose_answer_and_refuse, "POST", remote.path, skip=1)
    operator = threading.Thread(target=come_back)
    operator.start()
    run(tmp_path, remote.config, outage="60s")
    operator.join()
    check_exactly_once(remote.table(), 3)


def test_a_job_that_starts_again_waits_for_the_catalog(
    spark: SparkSession,
    remote: RemoteLake,
    proxy: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It goes away after a failure of the job, before the job is planned anew."""
    broken, gone, opened = tmp_path / "broken", threading.Event(), MemorySource.open

    def go_away_and_open(source: MemorySource, context: SourceContext) -> Reader:
        if broken.exists() and not gone.is_set():
            gone.set()
            proxy.refuse()
        return opened(source, context)

    monkeypatch.setattr(MemorySource, "open", go_away_and_open)

    def break_once(row: dict[str, int]) -> dict[str, int]:
        if not broken.exists():
            broken.touch()
            raise RuntimeError("once")
        return row

    def come_back() -> None:
        wait_until(lambda: caplog.text.count("waiting for the catalog") > 1, 60, "the second attempt")
        proxy.listen()

    operator = threading.Thread(target=come_back)
    operator.start()
    environment = Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))
    stream = environment.from_source(MemorySource([{"id": 1}, {"id": 2}])).map(break_once)
    sink = IcebergSink(remote.config)
    job = stream.to_sink(sink).execute("again", restart=Restart(limit=1, backoff="10ms"), outage="60s")
    operator.join()
    assert job.progress.restarts == 1
    assert sorted(remote.table().scan().to_arrow()["id"].to_pylist()) == [1, 2]
