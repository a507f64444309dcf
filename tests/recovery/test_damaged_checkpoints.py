"""Every file of a checkpoint is damaged in every way: the job says so, and a repair loses and doubles no row."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import volley
from tests.disks import can_mount, small_disk
from tests.recovery.runs import load
from tests.tiers import some
from volley import (
    Environment,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    MemorySink,
    MemorySource,
    PlanError,
    StorageError,
    col,
)
from volley.connectors.files import log

ROWS_PER_FILE = 3

WAYS: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "garbage": lambda path: path.write_bytes(bytes(255 - byte for byte in path.read_bytes())),
    "gone": Path.unlink,
}


class Lake:
    """A folder with files, a job that reads one in an epoch, and the job's table."""

    def __init__(self, spark: SparkSession, folder: Path, stateful: bool) -> None:
        self.spark = spark
        self.folder = folder
        self.stateful = stateful
        self.checkpoint = folder / "checkpoints" / "job"

    def put(self, *numbers: int) -> None:
        """Write files of these numbers; each repeats the last id of the one before if the job drops duplicates."""
        (self.folder / "in").mkdir(parents=True, exist_ok=True)
        for number in numbers:
            first = number * ROWS_PER_FILE - (self.stateful and number > 0)
            ids = pa.array(range(first, (number + 1) * ROWS_PER_FILE), pa.int64())
            pq.write_table(pa.table({"id": ids}), self.folder / "in" / f"{number}.parquet")

    def run(self) -> None:
        """One run of the job, to the end of what is there."""
        environment = Environment(spark=self.spark, checkpoint_dir=str(self.checkpoint.parent))
        stream = environment.from_source(FileSource(self.folder / "in", format="parquet", max_files_per_epoch=1))
        if self.stateful:
            stream = stream.deduplicate("id")
        storage = IcebergStorage.Local(str(self.folder / "lake"))
        stream.to_sink(IcebergSink(IcebergSinkConfig(namespace=["db"], table="events", storage=storage))).execute("job")

    def files(self) -> Iterator[Path]:
        """The files of the checkpoint."""
        return (path for path in sorted(self.checkpoint.rglob("*")) if path.is_file())

    def ids(self) -> list[int]:
        found: list[int] = load(self.folder).scan().to_arrow()["id"].to_pylist()
        return sorted(found)


def expected(files: int) -> list[int]:
    return list(range(files * ROWS_PER_FILE))


@pytest.fixture(scope="module")
def stateless(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return begun(Lake(spark, tmp_path_factory.mktemp("stateless"), stateful=False))


@pytest.fixture(scope="module")
def stateful(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return begun(Lake(spark, tmp_path_factory.mktemp("stateful"), stateful=True))


def begun(lake: Lake) -> Lake:
    """A job that has read three files, of which two are in one file of its log, and has a fourth before it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "_FAN_IN", 2)
        for number in range(3):
            lake.put(number)
            lake.run()
    lake.put(3)
    return lake


def damaged_in_turn(lake: Lake, way: str, names: Sequence[Path]) -> Iterator[Path]:
    """Each of these files of the checkpoint, damaged; after each, checkpoint and table are as they were."""
    original = lake.folder / "original"
    shutil.rmtree(original, ignore_errors=True)
    shutil.copytree(lake.folder, original, ignore=shutil.ignore_patterns("original"))
    for name in names:
        WAYS[way](lake.checkpoint / name)
        yield name
        for part in ("checkpoints", "lake"):
            shutil.rmtree(lake.folder / part)
            shutil.copytree(original / part, lake.folder / part)


@pytest.mark.parametrize("way", some(WAYS))
def test_every_damage_is_named_or_of_no_account_and_a_repair_keeps_each_row_once(stateless: Lake, way: str) -> None:
    check_each(stateless, way, [path.relative_to(stateless.checkpoint) for path in stateless.files()])


@pytest.mark.parametrize("way", some(WAYS))
def test_every_damage_of_state_is_named_or_of_no_account(stateful: Lake, way: str) -> None:
    names = [path.relative_to(stateful.checkpoint) for path in stateful.files()]
    check_each(stateful, way, [name for name in names if name.parts[:2] == ("volley", "deduplicate-0")])


def check_each(lake: Lake, way: str, names: Sequence[Path]) -> None:
    refused = 0
    for name in damaged_in_turn(lake, way, names):
        error = refusal(lake)
        if error is not None:
            refused += 1
            # How far a merged file of the log reached, nothing says when it is gone.
            shown = re.sub(r"^(\d{12}-).*", r"\1", name.name.removeprefix(".").removesuffix(".crc"))
            assert shown in error, f"{name}: {error}"
            if not repaired(lake):
                continue
            lake.run()
        assert lake.ids() == expected(4), f"{name} {way}"
    assert refused, "no damage was noticed"


def refusal(lake: Lake) -> str | None:
    """What a run says of the damage; None if it goes to the end."""
    try:
        lake.run()
    except StorageError as error:
        return str(error)
    return None


def repaired(lake: Lake) -> bool:
    """Repair the checkpoint; False if nothing can be repaired, as the error then says."""
    done = []
    with suppress(StorageError):
        done = volley.repair(lake.checkpoint)
    if not done:
        assert lake.ids() == expected(3)
    return bool(done)


def test_a_repair_says_what_it_did(stateless: Lake) -> None:
    offsets = stateless.checkpoint / "offsets" / "2"
    for _ in damaged_in_turn(stateless, "empty", [offsets.relative_to(stateless.checkpoint)]):
        (done,) = volley.repair(stateless.checkpoint)
        assert done.startswith(f"{offsets} is empty: makes the job plan epoch 2 and later ones again")
        assert volley.repair(stateless.checkpoint) == []


def test_other_rows_than_those_that_a_table_has_are_not_planned_in_their_place(stateless: Lake) -> None:
    offsets = stateless.checkpoint / "offsets" / "1"
    for _ in damaged_in_turn(stateless, "empty", [offsets.relative_to(stateless.checkpoint)]):
        (stateless.checkpoint / "offsets" / "2").unlink()
        volley.repair(stateless.checkpoint)
        stateless.run()
        assert stateless.ids() == expected(4)


def test_the_half_of_a_first_entry_is_no_dead_end(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path, stateful=True)
    lake.put(0)
    lake.run()
    first = lake.checkpoint / "offsets" / "0"
    first.rename(first.with_name(".0.5e0e.tmp"))
    shutil.rmtree(lake.checkpoint / "commits")
    lake.put(1)
    lake.run()
    assert lake.ids() == expected(2)


def test_a_checkpoint_that_is_whole_is_left_alone(stateless: Lake) -> None:
    before = {path: path.read_bytes() for path in stateless.files()}
    assert volley.repair(str(stateless.checkpoint)) == []
    assert {path: path.read_bytes() for path in stateless.files()} == before


def test_there_is_nothing_to_repair_where_no_checkpoint_is(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no checkpoint"):
        volley.repair(tmp_path / "nothing")
    with pytest.raises(StorageError, match="is no checkpoint of Volley's"):
        volley.repair(tmp_path)


def test_state_that_is_gone_is_named(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path, stateful=True)
    lake.put(0)
    lake.run()
    state = lake.checkpoint / "volley" / "deduplicate-0"
    state.rename(tmp_path / "state")
    lake.put(1)
    with pytest.raises(StorageError, match=f"state {state}/0/done.json is missing"):
        lake.run()
    shutil.rmtree(state, ignore_errors=True)
    (tmp_path / "state").rename(state)
    lake.run()
    assert lake.ids() == expected(2)


def test_keys_of_another_type_do_not_fit_the_state(spark: SparkSession, tmp_path: Path) -> None:
    def run(rows: int, data_type: str) -> None:
        source = MemorySource([{"id": number} for number in range(rows)])
        stream = Environment(spark=spark, checkpoint_dir=str(tmp_path)).from_source(source)
        stream.with_column("id", col("id").cast(data_type)).deduplicate("id").to_sink(MemorySink()).execute("job")

    run(2, "long")
    with pytest.raises(PlanError, match="the types behind deduplicate by 'id' have changed"):
        run(4, "int")


@can_mount
def test_a_full_disk_under_the_checkpoint_is_named_and_the_job_goes_on_when_there_is_room(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path, stateful=False)
    lake.put(0, 1, 2)
    lake.checkpoint.mkdir(parents=True)
    with small_disk(lake.checkpoint.parent) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(_room(disk) - 5 * 4096))
        with pytest.raises(StorageError, match=f"the disk under checkpoint folder {lake.checkpoint} is full"):
            lake.run()
        ballast.unlink()
        lake.run()
        assert lake.ids() == expected(3)


def _room(folder: Path) -> int:
    return shutil.disk_usage(folder).free
