"""Erasure looks into checkpoints: states, rows of joins, staged segments and requests that have a person's rows."""

from __future__ import annotations

import gzip
import shutil
from array import array
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.iceberg.tables import Files
from tests.iceberg.test_erasure import GONE, Lake, name, row
from volley import (
    ConfigError,
    DataStream,
    Environment,
    FileSource,
    MemorySink,
    MemorySource,
    StorageError,
    count,
    pack_rows,
    tumbling,
)
from volley.capture.segments import Segments
from volley.connectors.webhook.frames import Entry
from volley.connectors.webhook.log import Log, LogFolder
from volley.iceberg import IcebergTable
from volley.storage.state_formats import STATE
from volley.store.files import COMPRESSED, new_file

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema({"user": pa.string(), "number": pa.int64(), "at": pa.timestamp("us", "UTC")})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "lake")
    made.append(row(GONE, 987_654_321), row(name(1)))
    yield made
    made.close()


def found(lake: Lake, folder: Path, keys: Sequence[dict[str, Any]] = ({"id": GONE},)) -> list[str]:
    """What an erasure names below a folder, by the names of the files."""
    planned = lake.view.erase(keys, dry_run=True, checkpoints=[str(folder)])
    left = [Path(path).relative_to(folder).as_posix() for path, _ in planned.left]
    if left:
        with pytest.raises(StorageError, match=f"{len(left)} files of checkpoints have some, or may have") as caught:
            lake.view.erase(keys, checkpoints=[str(folder)])
        assert all(path in str(caught.value) for path in left[:10])
    else:
        erasure = lake.view.erase(keys, checkpoints=[str(folder)])
        assert (erasure.is_complete, bool(erasure.proven_at)) == (True, True)
    return left


def write(folder: Path, number: int, *rows: tuple[str, int, int]) -> None:
    folder.mkdir(exist_ok=True)
    timed = [(user, value, START + timedelta(seconds=at)) for user, value, at in rows]
    columns = dict(zip(SCHEMA.names, zip(*timed, strict=True), strict=True))
    pq.write_table(pa.table(columns, SCHEMA), folder / f"{number}.parquet")


def windows(environment: Environment, folder: Path) -> DataStream:
    events = environment.from_source(FileSource(str(folder), format="parquet", max_files_per_epoch=1))
    keyed = events.key_by("user", "number")
    return keyed.window(tumbling("1m"), on="at", emit="updates").aggregate(n=count())


def joined(environment: Environment, folder: Path) -> DataStream:
    events = environment.from_source(FileSource(str(folder), format="parquet", max_files_per_epoch=1))
    return events.join(events, on="user", within=("0s", "5s"), time="at", suffix="_2", lateness="1m")


@pytest.mark.parametrize("keys", [[{"id": GONE}], [{"number": 987_654_321}], [{"id": GONE, "number": 987_654_321}]])
@pytest.mark.parametrize("step", [windows, joined])
def test_a_state_is_named_until_it_lets_go(step: Any, keys: Any, lake: Lake, tmp_path: Path) -> None:
    checkpoints, source = tmp_path / "checkpoints", tmp_path / "in"
    write(source, 0, (name(1), 123_456_789, 0), (GONE, 987_654_321, 1))

    def run() -> None:
        environment = Environment(checkpoint_dir=str(checkpoints))
        step(environment, source).to_sink(MemorySink("totals")).execute("totals")

    run()
    named = found(lake, checkpoints, keys)
    assert named
    assert all(path.endswith(".arrow") for path in named)
    # Another person's number beside the person's name is no key.
    assert found(lake, checkpoints, [{"id": GONE, "number": 123_456_789}]) == []
    for number in range(1, 8):
        write(source, number, (name(2), 2, number * 1_000))
    run()
    assert found(lake, checkpoints, keys) == []


def test_rows_of_a_joined_table(lake: Lake, tmp_path: Path) -> None:
    environment = Environment(checkpoint_dir=str(tmp_path / "checkpoints"))
    people = MemorySource([{"id": GONE, "city": "Paris"}, {"id": name(1), "city": "Rome"}], name="people")
    visits = environment.from_source(MemorySource([{"id": name(1)}], name="visits"))
    visits.join(people, on="id").to_sink(MemorySink("joined")).execute("joined")
    (path,) = found(lake, tmp_path / "checkpoints")
    assert "/joins/" in path
    assert found(lake, tmp_path / "checkpoints", [{"id": name(3)}]) == []


def segment(folder: Path, *messages: bytes) -> Path:
    segments = Segments(str(folder / "volley" / "source-0" / "segments"))
    writer = segments.writer(segments.chain(100))
    writer.write(bytearray(b"".join(messages)), array("i", map(len, messages)))
    writer.finish(200, 1.5)
    return max((folder / "volley" / "source-0" / "segments").glob("*.arrow"))


@pytest.mark.parametrize(
    ("message", "key"),
    [
        (b"I\0\0\0\1Nt\0\0\0\x17" + GONE.encode() + b"t", {"id": GONE}),
        (b"I\0\0\0\1Nt\0\0\0\t987654321t", {"number": 987_654_321}),
        (b"\x17\0\0\0\1" + (987_654_321).to_bytes(8, "little") + b"x", {"number": 987_654_321}),
        (b"\x17\0\0\0\1" + (987_654_321).to_bytes(4, "big") + b"x", {"number": 987_654_321}),
    ],
)
def test_a_segment_is_named_until_it_is_deleted(message: bytes, key: Any, lake: Lake, tmp_path: Path) -> None:
    others = [b"I%dt%s" % (number, name(1).encode() * 9) for number in range(99)]
    path = segment(tmp_path / "job", *others, message)
    # Its batches are compressed: a scan of bytes alone could miss it.
    assert found(lake, tmp_path / "job", [key]) == [path.relative_to(tmp_path / "job").as_posix()]
    segments = Segments(str(path.parent))
    segment(tmp_path / "job", *others)
    assert len(segments.listed()) == 2
    segments.delete_before(segments.listed()[-1].first)
    assert found(lake, tmp_path / "job", [key]) == []


def test_a_key_whose_bytes_in_messages_are_not_known(tmp_path: Path) -> None:
    files = Files(tmp_path / "lake", pa.schema({"born": pa.date32()}))
    files.commit([files.data([{"born": date(1990, 1, 2)}])])
    segment(tmp_path / "job", b"other")
    planned = IcebergTable(files.ref).erase([{"born": "1990-01-02"}], dry_run=True, checkpoints=[f"{tmp_path}/job"])
    assert [Path(path).parent.name for path, _ in planned.left] == ["segments"]
    with new_file(f"{tmp_path}/state/state-0.arrow", STATE) as file:
        file.write_batch(pa.record_batch({"key_0": [date(1990, 1, 3)]}))
    keys = [{"born": "1990-01-02"}], [{"born": "1990-01-03"}]
    left = [IcebergTable(files.ref).erase(key, dry_run=True, checkpoints=[f"{tmp_path}/state"]).left for key in keys]
    assert list(map(len, left)) == [0, 1]
    files.close()


@pytest.mark.parametrize("key", [{"id": GONE}, {"number": 987_654_321}])
def test_requests_of_a_webhook(key: Any, lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    log = Log(LogFolder(str(folder)))
    log.append([Entry(b"", b"", b'{"id": "%s"}' % name(1).encode())])
    assert found(lake, folder, [key]) == []
    log.append([Entry(b"", b"", b'{"id": "%s", "number": 987654321}' % GONE.encode())])
    assert [Path(path).suffix for path in found(lake, folder, [key])] == [".log"]
    log.rotate()
    LogFolder(str(folder)).release(log.end)
    assert found(lake, folder, [key]) == []
    log.close()


def test_packed_and_nested_rows(lake: Lake, tmp_path: Path) -> None:
    packed = pack_rows(pa.record_batch({"who": [name(1), GONE], "n": [1, 2]}))
    columns = [pa.array([packed]), pa.array([[{"who": [GONE]}]]), pa.array([GONE]).dictionary_encode()]
    for number, column in enumerate(columns):
        with new_file(f"{tmp_path}/job/{number}.arrow", STATE, options=COMPRESSED) as file:
            file.write_batch(pa.record_batch({"row_0": column}))
    assert found(lake, tmp_path / "job") == ["0.arrow", "1.arrow", "2.arrow"]


def test_what_can_not_be_read_is_named(lake: Lake, tmp_path: Path) -> None:
    job = tmp_path / "job"
    path = segment(job, b"nothing")
    assert found(lake, job) == []
    content = path.read_bytes()
    for damaged in (content[:-1], content.replace(b"volley segment 2", b"volley segment 9"), content[:200]):
        path.write_bytes(damaged)
        assert found(lake, job) == [path.relative_to(job).as_posix()]
    path.write_bytes(content.replace(b"volley segment 2", b"volley unknown 2"))
    assert found(lake, job) == [path.relative_to(job).as_posix()]
    path.unlink()
    (job / "state").mkdir()
    (job / "state" / "1.delta").write_bytes(b"")
    assert found(lake, job) == ["state/1.delta"]
    shutil.rmtree(job / "state")
    (job / "rows.json.gz").write_bytes(gzip.compress(b"{}"))
    assert found(lake, job) == ["rows.json.gz"]
    (job / "rows.json.gz").unlink()
    (job / "listed.json").write_text(f'["in/{GONE}.json"]')
    assert found(lake, job) == ["listed.json"]


def test_folders_that_are_not_there_change_nothing(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such folder"):
        lake.view.erase([{"id": GONE}], checkpoints=[f"{tmp_path}/none"])
    with pytest.raises(ConfigError, match="checkpoints are given, and proof=False"):
        lake.view.erase([{"id": GONE}], proof=False, checkpoints=[str(tmp_path)])
    assert sorted(lake.view.to_arrow()["id"].to_pylist()) == sorted([GONE, name(1)])
