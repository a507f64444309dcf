"""What the driver writes into Spark's two logs: an entry for each epoch that is planned, one for each that is done."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from fsspec import AbstractFileSystem

from volley import JobError, StorageError
from volley.spark import log as log_module
from volley.spark.log import COMMITS, OFFSETS, SparkLog
from volley.storage.durable import create_durably


def names(folder: Path, log: str) -> set[str]:
    return {path.name for path in (folder / log).iterdir()}


def test_an_epoch_is_planned_then_done(tmp_path: Path) -> None:
    log = SparkLog(str(tmp_path))
    log.plan(0, ['{"rows": 3}', '{"files": 1}'])
    assert (log.last_planned, log.last_finished, log.unfinished) == (0, None, 0)
    log.finish(0)
    assert (log.last_planned, log.last_finished, log.unfinished) == (0, 0, None)
    version, settings, *offsets = (tmp_path / OFFSETS / "0").read_text().splitlines()
    assert (version, offsets) == ("v1", ['{"rows": 3}', '{"files": 1}'])
    # As Spark has them, which may go on with the job in an earlier version.
    assert json.loads(settings).keys() == {"batchWatermarkMs", "batchTimestampMs", "conf"}
    assert (tmp_path / COMMITS / "0").read_text() == 'v1\n{"nextBatchWatermarkMs":0}'
    assert names(tmp_path, OFFSETS) == names(tmp_path, COMMITS) == {"0"}
    assert SparkLog(str(tmp_path)).offsets(0) == offsets


def test_a_planned_epoch_is_on_the_disk_before_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    log = SparkLog(str(tmp_path))
    log.plan(0, ["{}"])
    assert [Path(path).parent.name if ".tmp" in path else path for path in synced] == [OFFSETS, f"{tmp_path}/{OFFSETS}"]
    # What Spark has planned is not; what the driver has planned is on the disk already.
    log.make_durable(0)
    assert len(synced) == 2
    SparkLog(str(tmp_path)).make_durable(0)
    assert synced[2:] == [f"{tmp_path}/{OFFSETS}/0", f"{tmp_path}/{OFFSETS}"]


def test_of_two_drivers_one_plans_an_epoch(tmp_path: Path) -> None:
    logs, errors, gate = [SparkLog(str(tmp_path)) for _ in range(2)], list[Exception](), threading.Barrier(2)

    def plan(number: int) -> None:
        gate.wait(10)
        try:
            logs[number].plan(0, [json.dumps({"rows": number})])
        except JobError as error:
            errors.append(error)

    threads = [threading.Thread(target=plan, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    (error,) = errors
    assert "epoch 0 was planned by another driver" in str(error)
    assert names(tmp_path, OFFSETS) == {"0"}


def test_an_entry_that_the_driver_itself_has_made_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store whose first answer was lost is asked again, and finds what it has stored."""

    def create(files: AbstractFileSystem, path: str, data: bytes) -> bool:
        assert create_durably(files, path, data)
        return create_durably(files, path, data)

    monkeypatch.setattr(log_module, "create_durably", create)
    log = SparkLog(str(tmp_path))
    log.plan(0, ['{"rows": 3}'])
    assert SparkLog(str(tmp_path)).offsets(0) == log.offsets(0) == ['{"rows": 3}']


@pytest.mark.parametrize("by_spark", [False, True])
def test_the_last_hundred_entries_are_kept(tmp_path: Path, by_spark: bool) -> None:
    before = 150 if by_spark else 0
    for folder in (OFFSETS, COMMITS):
        (tmp_path / folder).mkdir()
        for epoch in range(before):
            # Spark has deleted those up to the 50th, and has checksums beside the others.
            for name in (f"{epoch}", f".{epoch}.crc") if epoch >= 49 else ():
                (tmp_path / folder / name).write_bytes(b"v1\n{}\n{}")
    log = SparkLog(str(tmp_path))
    for epoch in range(before, before + 105):
        log.plan(epoch, ["{}"])
        log.finish(epoch)
    last = before + 104
    kept = set(range(last - 100, last + 1))
    for folder in (OFFSETS, COMMITS):
        found = {name for name in names(tmp_path, folder) if not name.endswith(".crc")}
        assert {int(name) for name in found} == kept
        assert {int(name[1:-4]) for name in names(tmp_path, folder) - found} == kept & set(range(before))


def test_a_log_that_can_t_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / OFFSETS).write_text("a file where a folder should be")
    with pytest.raises(StorageError, match="can't be used"):
        SparkLog(str(tmp_path)).plan(0, ["{}"])


def test_no_other_user_reads_the_logs(tmp_path: Path) -> None:
    log = SparkLog(str(tmp_path))
    log.plan(0, ["{}"])
    log.finish(0)
    assert {oct((tmp_path / folder / "0").stat().st_mode & 0o777) for folder in (OFFSETS, COMMITS)} == {"0o600"}
