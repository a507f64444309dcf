"""Faults of the storage: nothing is referenced that is not there, and the next start loses and doubles no row."""

from __future__ import annotations

import random
import resource
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import s3fs

from tests.disks import can_mount, small_disk
from tests.recovery.full_disk import ROOM
from tests.recovery.lake import QUERY, SCHEMA, Lake, write
from tests.recovery.remote import RemoteLake
from tests.services.fault_proxy import Answer, Fault, FaultProxy, Server, answer_as_s3, lose_answer, lose_request
from tests.tiers import nightly, some
from volley import (
    CommitStateUnknownError,
    Epoch,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    Metrics,
    SinkContext,
    StorageAccessError,
    StorageError,
    VolleyError,
    WriteResult,
)

FAILING = [(answer_as_s3(500, "InternalError"), StorageError), (answer_as_s3(503, "SlowDown"), StorageError)]
DENIED = (answer_as_s3(403, "AccessDenied"), StorageAccessError)
REFUSALS = [FAILING[0], nightly(*FAILING[1]), DENIED]
IDS = [1, 2]


def next_start_goes_on(lake: Lake | RemoteLake, ids: list[int] = IDS) -> None:
    """The storage is well again: a new driver repeats epoch 0 if it is not there, and adds epoch 1."""
    driver = lake.driver()
    if driver.last_epoch(QUERY) is None:
        driver.commit(*write(driver, 0, ids))
    assert driver.last_epoch(QUERY) == 0
    driver.commit(*write(driver, 1, [2**40]))
    assert lake.rows() == [*sorted(ids), 2**40]
    assert [s.summary["volley.epoch"] for s in lake.table().snapshots() if s.summary] == ["0", "1"]


def by_name(fault: Fault) -> str:
    return fault.__name__


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage's clients don't try again by themselves for half a minute."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 2)


@pytest.fixture
def far(remote: RemoteLake, storage_proxy: FaultProxy) -> RemoteLake:
    """A table whose drivers reach the storage through the proxy."""
    return remote.through(storage_proxy)


@pytest.mark.parametrize(("fault", "kind"), REFUSALS, ids=["500", "503", "403"])
def test_a_data_file_that_can_not_be_written(
    far: RemoteLake, remote: RemoteLake, storage_proxy: FaultProxy, fault: Fault, kind: type[VolleyError]
) -> None:
    driver = far.driver()
    storage_proxy.arm(fault, "PUT", "/data/", times=None)
    with pytest.raises(kind, match=rf"{far.table_name}/data/"):
        write(driver, 0, IDS)
    storage_proxy.disarm()
    assert remote.files() == []
    assert remote.rows() == []
    next_start_goes_on(far)


@pytest.mark.parametrize(("fault", "kind"), REFUSALS, ids=["500", "503", "403"])
def test_a_manifest_that_can_not_be_written(
    far: RemoteLake, remote: RemoteLake, storage_proxy: FaultProxy, fault: Fault, kind: type[VolleyError]
) -> None:
    driver = far.driver()
    written = write(driver, 0, IDS)
    storage_proxy.arm(fault, "PUT", "/metadata/", times=None)
    with pytest.raises(kind, match=far.table_name):
        driver.commit(*written)
    storage_proxy.disarm()
    assert remote.rows() == []
    driver.abort(*written)
    assert remote.files() == []
    next_start_goes_on(far)


@pytest.mark.parametrize(
    "fault", [FAILING[0][0], lose_request, *map(nightly, (FAILING[1][0], lose_answer))], ids=by_name
)
def test_a_storage_that_fails_once(
    far: RemoteLake, storage_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    driver = far.driver()
    storage_proxy.arm(fault, "PUT", "/data/")
    storage_proxy.arm(fault, "PUT", "/metadata/")
    driver.commit(*write(driver, 0, IDS))
    next_start_goes_on(far)


def test_files_that_can_not_be_looked_for(far: RemoteLake, remote: RemoteLake, storage_proxy: FaultProxy) -> None:
    driver = far.driver()
    written = write(driver, 0, IDS)
    for method, path in (("HEAD", "/data/"), ("GET", "list-type")):
        storage_proxy.arm(answer_as_s3(503, "SlowDown"), method, path, times=None)
    with pytest.raises(StorageError, match=far.table_name):
        driver.commit(*written)
    storage_proxy.disarm()
    assert remote.rows() == []
    next_start_goes_on(far)


def test_slow_storage(far: RemoteLake, storage_proxy: FaultProxy) -> None:
    def slowly(server: Server) -> Answer:
        threading.Event().wait(0.5)
        return server()

    driver = far.driver()
    storage_proxy.arm(slowly, "PUT", "/", times=None)
    driver.commit(*write(driver, 0, IDS))
    storage_proxy.disarm()
    next_start_goes_on(far)


def path_of(written: tuple[Epoch, list[WriteResult]]) -> str:
    return str(written[1][0].committables[0].data_file.file_path)


def test_a_file_that_vanishes_from_s3(remote: RemoteLake) -> None:
    driver = remote.driver()
    written = write(driver, 0, IDS)
    driver._table.io.delete(path_of(written))
    with pytest.raises(StorageError, match="is gone") as caught:
        driver.commit(*written)
    assert "start the job again" in str(caught.value.hint)
    assert remote.rows() == []
    next_start_goes_on(remote)


def test_a_file_that_vanishes_from_a_folder(lake: Lake) -> None:
    driver = lake.driver()
    written = write(driver, 0, IDS)
    lake.files()[0].unlink()
    with pytest.raises(StorageError, match="is gone"):
        driver.commit(*written)
    assert lake.table().snapshots() == []
    next_start_goes_on(lake)


def test_a_file_cut_short(lake: Lake) -> None:
    driver = lake.driver()
    written = write(driver, 0, IDS)
    lake.files()[0].write_bytes(b"PAR1")
    with pytest.raises(StorageError, match="has 4 bytes and not"):
        driver.commit(*written)
    assert lake.table().snapshots() == []
    driver.abort(*written)
    assert lake.files() == []
    next_start_goes_on(lake)


def test_a_file_that_vanishes_between_two_attempts(remote: RemoteLake, proxy: FaultProxy) -> None:
    driver = remote.driver()
    written = write(driver, 0, IDS)

    def vanish(server: Server) -> None:
        driver._table.io.delete(path_of(written))

    proxy.arm(vanish, "POST", remote.path)
    with pytest.raises(CommitStateUnknownError, match="is gone"):
        driver.commit(*written)
    assert remote.table().snapshots() == []
    next_start_goes_on(remote)


@contextmanager
def replaced_by_a_file(folder: Path) -> Iterator[None]:
    """Nobody, not even root, can write into the folder meanwhile."""
    aside = folder.with_name(f"{folder.name}-aside")
    if existed := folder.exists():
        folder.rename(aside)
    folder.touch()
    yield
    folder.unlink()
    if existed:
        aside.rename(folder)


def place(lake: Lake, name: str) -> Path:
    return Path(lake.table().location().removeprefix("file://")) / name


def test_a_data_folder_that_takes_no_files(lake: Lake) -> None:
    driver = lake.driver()
    with replaced_by_a_file(place(lake, "data")), pytest.raises(StorageError, match="/data/"):
        write(driver, 0, IDS)
    assert lake.files() == []
    next_start_goes_on(lake)


def test_a_metadata_folder_that_takes_no_files(lake: Lake) -> None:
    driver = lake.driver()
    written = write(driver, 0, IDS)
    with replaced_by_a_file(place(lake, "metadata")), pytest.raises(StorageError, match=r"db/events"):
        driver.commit(*written)
    assert lake.rows() == []
    driver.abort(*written)
    assert lake.files() == []
    next_start_goes_on(lake)


@pytest.fixture
def room(lake: Lake, tmp_path: Path) -> Path:
    """The file that says how much room each file has; as long as it is absent there is enough."""
    room = tmp_path / "room"
    lake.config = lake.config.with_properties({"py-io-impl": "tests.recovery.full_disk.FillingDisk", ROOM: str(room)})
    return room


@pytest.mark.parametrize("size", some([100, 0, 600]))
def test_a_disk_that_is_full_while_data_is_written(lake: Lake, room: Path, size: int) -> None:
    driver = lake.driver()
    room.write_text(str(size))
    with pytest.raises(StorageError, match="no space left") as caught:
        write(driver, 0, list(range(1000)))
    assert "make room" in str(caught.value.hint)
    assert lake.files() == []
    room.unlink()
    next_start_goes_on(lake)


@pytest.mark.parametrize("size", some([100, 0, 2500]))
def test_a_disk_that_is_full_while_metadata_is_written(lake: Lake, room: Path, size: int) -> None:
    driver = lake.driver()
    written = write(driver, 0, IDS)
    room.write_text(str(size))
    with pytest.raises(StorageError, match="no space left"):
        driver.commit(*written)
    room.unlink()
    assert lake.rows() == []
    driver.abort(*written)
    assert lake.files() == []
    next_start_goes_on(lake)


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """The system itself refuses to let files grow beyond this; Python ignores the signal that goes with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_system_that_lets_no_file_grow(lake: Lake) -> None:
    driver = lake.driver()
    ids = random.Random(0).sample(range(2**39), 100_000)
    with files_up_to(200_000), pytest.raises(StorageError, match="File too large"):
        write(driver, 0, ids)
    assert lake.files() == []
    next_start_goes_on(lake, ids)


@can_mount
@pytest.mark.parametrize(("fault", "told"), [("full", "no space left"), ("read-only", "Read-only file system")])
def test_a_lake_on_a_disk_that_takes_nothing_says_why_at_the_start(tmp_path: Path, fault: str, told: str) -> None:
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk") as disk:
        if fault == "full":
            with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
                while filler.write(bytes(4096)):
                    pass
        else:
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        before = sorted(disk.rglob("*"))
        storage = IcebergStorage.Local(disk / "lake")
        sink = IcebergSink(IcebergSinkConfig(namespace="db", table="events", storage=storage))
        with pytest.raises(StorageError, match=told) as caught:
            sink.open(SinkContext("job", SCHEMA, Metrics()))
        assert ("make room" if fault == "full" else "it is read-only") in str(caught.value.hint)
        # Folders and empty files take no room.
        assert [path for path in disk.rglob("*") if path.is_file() and path.stat().st_size] == [
            path for path in before if path.is_file()
        ]
