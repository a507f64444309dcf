"""Contract of every source and its reader. As on Spark, driver, planner and executors share nothing but pickles."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import orc
from pyiceberg.table import Table
from pyspark import cloudpickle

from tests.tiers import examples
from volley import (
    FileSource,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    KafkaSource,
    MemorySource,
    Reader,
    Source,
    SourceContext,
    SourceError,
    WebhookSource,
)
from volley.connectors.memory import reader as memory_reader
from volley.connectors.snapshots.source import SnapshotSource
from volley.connectors.webhook import reader as webhook_reader
from volley.connectors.webhook.frames import Entry
from volley.connectors.webhook.log import Log
from volley.connectors.webhook.reader import WebhookReader
from volley.contracts.rows import BadRow, PositionedBatch
from volley.contracts.source import Offset, Split
from volley.formats import files
from volley.iceberg import Incremental, TableRef

ROWS: list[dict[str, Any]] = [{"id": i, "name": f"name-{i}" if i % 5 else None} for i in range(60)]
SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})
PIECES = [ROWS[:7], ROWS[7:8], ROWS[8:30], ROWS[30:31], ROWS[31:60]]


def shipped(value: Any) -> Any:
    """The value as another process gets it."""
    return cloudpickle.loads(cloudpickle.dumps(value))


@dataclass(frozen=True)
class Case:
    """A source with the rows of `ROWS`: how it is made, and how many of its own units it has."""

    make: Callable[[Path], Source]
    units: int


def memory_of_rows(folder: Path) -> Source:
    return MemorySource(ROWS)


def memory_of_arrow(folder: Path) -> Source:
    return MemorySource([pa.RecordBatch.from_pylist(piece, SCHEMA) for piece in PIECES])


def json_files(folder: Path) -> Source:
    for number, piece in enumerate(PIECES):
        (folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in piece))
    return FileSource(folder, format="json", schema=SCHEMA)


def csv_files(folder: Path) -> Source:
    for number, piece in enumerate(PIECES):
        pcsv.write_csv(pa.Table.from_pylist(piece, SCHEMA), folder / f"{number}.csv")
    return FileSource(f"{folder}/*.csv")


def csv_files_in_parts(folder: Path) -> Source:
    csv_files(folder)
    return FileSource(f"{folder}/*.csv", options={"newlines_in_values": False})


def parquet_files(folder: Path) -> Source:
    for number, piece in enumerate(PIECES):
        pq.write_table(pa.Table.from_pylist(piece, SCHEMA), folder / f"{number}.parquet", row_group_size=3)
    return FileSource(folder, format="parquet", bounded=False)


def webhook(folder: Path) -> Source:
    """A log with a request for each row, a write each."""
    source = WebhookSource(0, schema=SCHEMA, folder=str(folder / "log"))
    reader = source.open(SourceContext(str(folder)))
    assert isinstance(reader, WebhookReader)
    log = Log(reader.folder)
    for row in ROWS:
        log.append([Entry(b"", b"", json.dumps(row).encode())])
    log.close()
    return source


def orc_files(folder: Path) -> Source:
    for number, piece in enumerate(PIECES):
        orc.write_table(pa.Table.from_pylist(piece, SCHEMA), folder / f"{number}.orc")
    return FileSource(folder, format="orc", schema=SCHEMA)


def avro_files(folder: Path) -> Source:
    fields = [{"name": name, "type": ["null", of]} for name, of in (("id", "long"), ("name", "string"))]
    schema = fastavro.parse_schema({"type": "record", "name": "event", "fields": fields})
    for number, piece in enumerate(PIECES):
        with (folder / f"{number}.avro").open("wb") as file:
            fastavro.writer(file, schema, piece)
    return FileSource(f"{folder}/*.avro")


def table(folder: Path) -> tuple[TableRef, Table]:
    """A table with a snapshot of one file for each piece, after one without rows."""
    ref = TableRef("db", "events", IcebergStorage.Local(str(folder)))
    catalog = ref.load_catalog()
    catalog.create_namespace("db")
    written = catalog.create_table("db.events", SCHEMA)
    with written.transaction() as transaction:
        for piece in [[], *PIECES]:
            transaction.append(pa.Table.from_pylist(piece, SCHEMA))
    return ref, written


def iceberg_scan(folder: Path) -> Source:
    return IcebergSource(IcebergSourceConfig(table(folder)[0]))


def iceberg_increments(folder: Path) -> Source:
    ref, written = table(folder)
    first = written.metadata.snapshots[0].snapshot_id
    return IcebergSource(IcebergSourceConfig(ref).with_mode(Incremental("1ms", start_snapshot=first)))


CASES = {
    "iceberg-scan": Case(iceberg_scan, len(PIECES)),
    "iceberg-increments": Case(iceberg_increments, len(PIECES)),
    "memory-rows": Case(memory_of_rows, len(ROWS)),
    "memory-arrow": Case(memory_of_arrow, len(ROWS)),
    "json": Case(json_files, len(PIECES)),
    "csv": Case(csv_files, len(PIECES)),
    "csv-in-parts": Case(csv_files_in_parts, len(PIECES)),
    "webhook": Case(webhook, len(ROWS)),
    "parquet": Case(parquet_files, len(PIECES)),
    "orc": Case(orc_files, len(PIECES)),
    "avro": Case(avro_files, len(PIECES)),
}


FIRST, MORE = ROWS[:10], ROWS[10:20]
OTHERS = [{"id": row["id"] + 30, "name": row["name"] and f"name-{row['id'] + 30}"} for row in MORE]
"""Rows that take as many bytes as those of `MORE` in any form."""


def moving_memory(folder: Path, moves: int) -> Source:
    return MemorySource([*FIRST, *([], MORE, OTHERS)[moves]], name="moving")


def moving_files(folder: Path, moves: int, write: Callable[[Path, list[dict[str, Any]]], None], end: str) -> Source:
    """Files that were read are archived before others come."""
    (folder / "in").mkdir(exist_ok=True)
    if moves == 2:
        for path in (folder / "in").iterdir():
            path.unlink()
    path = folder / "in" / f"{moves}.{end}"
    write(path, (FIRST, MORE, OTHERS)[moves])
    os.utime(path, (1_000_000 + moves, 1_000_000 + moves))
    return FileSource(f"{folder}/in/*.{end}", schema=SCHEMA, bounded=False)


def write_json(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def moving_json(folder: Path, moves: int) -> Source:
    return moving_files(folder, moves, write_json, "json")


def moving_parquet(folder: Path, moves: int) -> Source:
    return moving_files(folder, moves, lambda path, rows: pq.write_table(pa.Table.from_pylist(rows), path), "parquet")


def rewritten_json(folder: Path, moves: int) -> Source:
    """The same names and sizes: only their times tell the files apart."""
    source = moving_json(folder, moves)
    if moves == 2:
        (folder / "in" / "2.json").rename(folder / "in" / "1.json")
    return source


def moving_extracts(folder: Path, moves: int) -> Source:
    """Each file is an extract; the second one is replaced by another of the same version and size."""
    (folder / "in").mkdir(exist_ok=True)
    path = folder / "in" / f"{min(moves, 1)}.json"
    write_json(path, (FIRST, MORE, OTHERS)[moves])
    os.utime(path, (1_000_000 + moves, 1_000_000 + moves))
    return SnapshotSource(FileSource(folder / "in", "json", SCHEMA, bounded=False), r"(\d+)\.json")


def moving_table_states(folder: Path, moves: int) -> Source:
    """Each snapshot is an extract; the table is rolled back before another one comes."""
    ref = TableRef("db", "events", IcebergStorage.Local(str(folder / "lake")))
    catalog = ref.load_catalog()
    if moves == 0:
        catalog.create_namespace("db")
        catalog.create_table("db.events", SCHEMA).append(pa.Table.from_pylist(FIRST, SCHEMA))
        return SnapshotSource(IcebergSource(IcebergSourceConfig(ref)))
    written = catalog.load_table("db.events")
    if moves == 2:
        written.manage_snapshots().set_current_snapshot(written.metadata.snapshots[0].snapshot_id).commit()
    written.overwrite(pa.Table.from_pylist((FIRST, MORE, OTHERS)[moves], SCHEMA))
    return SnapshotSource(IcebergSource(IcebergSourceConfig(ref)))


def moving_webhook(folder: Path, moves: int) -> Source:
    """The log is a part of the checkpoint."""
    source = WebhookSource(0, schema=SCHEMA, folder=str(folder / "state" / "log"))
    reader = source.open(SourceContext(str(folder / "state")))
    assert isinstance(reader, WebhookReader)
    log = Log(reader.folder)
    for row in (FIRST, MORE, OTHERS)[moves]:
        log.append([Entry(b"", b"", json.dumps(row).encode())])
    log.close()
    return source


def moving_iceberg(folder: Path, moves: int) -> Source:
    """The table is rolled back before others come."""
    ref = TableRef("db", "events", IcebergStorage.Local(str(folder / "lake")))
    catalog = ref.load_catalog()
    if moves == 0:
        catalog.create_namespace("db")
        catalog.create_table("db.events", SCHEMA).append(pa.Table.from_pylist([], SCHEMA))
    written = catalog.load_table("db.events")
    if moves == 2:
        written.manage_snapshots().set_current_snapshot(written.metadata.snapshots[1].snapshot_id).commit()
    written.append(pa.Table.from_pylist((FIRST, MORE, OTHERS)[moves], SCHEMA))
    first = written.metadata.snapshots[0].snapshot_id
    return IcebergSource(IcebergSourceConfig(ref).with_mode(Incremental("1ms", start_snapshot=first)))


MOVING: dict[str, Callable[[Path, int], Source]] = {
    "memory": moving_memory,
    "json": moving_json,
    "json-rewritten": rewritten_json,
    "parquet": moving_parquet,
    "webhook": moving_webhook,
    "iceberg": moving_iceberg,
    "extracts": moving_extracts,
    "table-states": moving_table_states,
}
"""Sources that go on: first they have the rows of `FIRST`, then those of `MORE` too, or instead those of `OTHERS`."""


def cut(path: Path, bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:-bytes])


def cut_log(folder: Path) -> None:
    """A receiver that dies while it writes leaves half a request, which nobody was told of."""
    cut(max((folder / "log").rglob("*.log")), 3)


HALVES: dict[str, Callable[[Path], None]] = {
    "json": lambda folder: cut(folder / "4.json", 6),
    "parquet": lambda folder: cut(folder / "4.parquet", 6),
    "orc": lambda folder: cut(folder / "4.orc", 6),
    "avro": lambda folder: cut(folder / "4.avro", 6),
    "webhook": cut_log,
}
"""How the input of a source is cut in the middle of its last row. Half a line of CSV is a line as well."""


class Planner:
    """Spark's planner process: it gets the reader once and asks it for offsets and splits."""

    def __init__(self, reader: Reader, *, bounded: bool = True) -> None:
        self.reader: Reader = shipped(reader)
        self.target = self.reader.latest_offset(self.reader.initial_offset(), None, None) if bounded else None

    def next(self, start: Offset, limit: int | None) -> Offset:
        # Spark keeps offsets as JSON text.
        offset: Offset = json.loads(json.dumps(self.reader.latest_offset(start, limit, self.target)))
        return offset


def read(reader: Reader, split: Split) -> list[pa.RecordBatch]:
    """One split, as an executor reads it."""
    copy: Reader = shipped(reader)
    return list(copy.read(shipped(split)))


# The columns by which rows of extracts tell which one they are of.
OF_EXTRACTS = {"_version", "_volley_extract"}


def rows_of(reader: Reader, planner: Planner, start: Offset, end: Offset) -> list[dict[str, Any]]:
    splits = planner.reader.splits(start, end)
    assert reader.splits(start, end) == splits, "the driver has another idea of what lies between two offsets"
    rows = [row for split in splits for batch in read(reader, split) for row in batch.to_pylist()]
    return [{name: value for name, value in row.items() if name not in OF_EXTRACTS} for row in rows]


@pytest.fixture(autouse=True, scope="module")
def small_splits() -> Iterator[None]:
    """Splits of a few rows, so that little data has many of them."""
    patch = pytest.MonkeyPatch()
    patch.setattr(memory_reader, "_ROWS_PER_SPLIT", 4)
    patch.setattr(webhook_reader, "_SMALLEST_SPLIT", 300)
    patch.setattr(files, "_SMALLEST_SPLIT", 100)
    patch.setattr(files, "_LARGEST_SPLIT", 900)
    patch.setattr(files, "_OPENING", 10)
    yield
    patch.undo()


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="module")
def source(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Source:
    return case.make(tmp_path_factory.mktemp("in"))


@pytest.fixture
def reader(source: Source, tmp_path: Path) -> Reader:
    return source.open(SourceContext(str(tmp_path / "state"), 5))


@settings(max_examples=examples(0.5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limits=st.lists(st.integers(1, 25), min_size=1), restarts=st.sets(st.integers(0, 20)), bounded=st.booleans())
def test_any_cut_and_any_restart_gives_every_row_once(
    source: Source, limits: list[int], restarts: set[int], bounded: bool
) -> None:
    with tempfile.TemporaryDirectory() as state:
        reader = source.open(SourceContext(state, 5))
        planner = Planner(reader, bounded=bounded)
        found: list[dict[str, Any]] = []
        start = planner.reader.initial_offset()
        for epoch in range(len(ROWS) + 1):
            end = planner.next(start, limits[epoch % len(limits)])
            if end == start:
                break
            if epoch in restarts:
                # The epoch is repeated by new processes, and gives the same.
                first = rows_of(reader, planner, start, end)
                reader = source.open(SourceContext(state, 5))
                planner = Planner(reader, bounded=bounded)
                assert rows_of(reader, planner, start, end) == first
            found += rows_of(reader, planner, start, end)
            start = end
    assert sorted(found, key=lambda row: row["id"]) == ROWS


def test_batches_have_the_schema_and_are_not_all_one(reader: Reader) -> None:
    planner = Planner(reader)
    start = planner.reader.initial_offset()
    splits = planner.reader.splits(start, planner.next(start, None))
    assert len(splits) > 3
    assert all(batch.schema.equals(reader.schema) for split in splits for batch in read(reader, split))
    assert reader.schema.equals(SCHEMA)


def test_a_split_read_twice_gives_the_same_rows(reader: Reader) -> None:
    planner = Planner(reader)
    start = planner.reader.initial_offset()
    for split in planner.reader.splits(start, planner.next(start, None)):
        assert read(reader, split) == read(reader, split)


def test_the_limit_counts_the_sources_own_units(reader: Reader, case: Case) -> None:
    planner = Planner(reader)
    start, epochs = planner.reader.initial_offset(), 0
    while (end := planner.next(start, 2)) != start:
        start, epochs = end, epochs + 1
    assert epochs == -(-case.units // 2)


def test_the_target_is_not_passed(reader: Reader, case: Case) -> None:
    planner = Planner(reader)
    start = planner.reader.initial_offset()
    planner.target = planner.reader.latest_offset(start, 3, None)
    assert planner.next(start, 2) != planner.target
    assert planner.next(start, None) == planner.next(start, case.units) == planner.target
    assert planner.next(planner.target, None) == planner.target


def test_at_the_end_the_offset_stays(reader: Reader) -> None:
    for bounded in (True, False):
        planner = Planner(reader, bounded=bounded)
        end = planner.next(planner.reader.initial_offset(), None)
        assert planner.next(end, None) == end
        assert planner.reader.splits(end, end) == []


def test_what_lies_behind_a_committed_offset_is_read_as_before(case: Case, tmp_path: Path) -> None:
    """A source of its own: some let go of what is committed."""
    (tmp_path / "in").mkdir()
    reader = case.make(tmp_path / "in").open(SourceContext(str(tmp_path / "state"), 5))
    planner = Planner(reader)
    start = planner.reader.initial_offset()
    middle = planner.next(start, 3)
    end = planner.next(middle, None)
    before = rows_of(reader, planner, middle, end)
    reader.start()
    try:
        for offset in (start, middle, middle):
            reader.committed(offset)
        # A started reader travels as one that was not started; who died behind a commit asks for its splits again.
        assert shipped(reader).splits(start, middle) == planner.reader.splits(start, middle)
        assert planner.next(middle, None) == end
        assert rows_of(reader, planner, middle, end) == before != []
        reader.committed(end)
        assert planner.next(end, None) == end
    finally:
        reader.stop()


def check_old_copy(moves: Callable[[Path, int], Source], folder: Path) -> None:
    """Restore a checkpoint after the epoch behind it is in the table, whose mark has a hash of the epoch's offset."""
    state, copy = folder / "state", folder / "copy"
    state.mkdir()

    def next_epoch(step: int, start: Offset | None) -> tuple[Offset, Offset, list[dict[str, Any]]]:
        reader = moves(folder, step).open(SourceContext(str(state), 5))
        planner = Planner(reader, bounded=False)
        start = planner.reader.initial_offset() if start is None else start
        end = planner.next(start, None)
        return start, end, rows_of(reader, planner, start, end)

    _, old, rows = next_epoch(0, None)
    assert rows == FIRST
    shutil.copytree(state, copy)
    _, end, rows = next_epoch(1, old)
    assert rows == MORE
    shutil.rmtree(state)
    shutil.copytree(copy, state)
    try:
        _, again, rows = next_epoch(2, old)
    except SourceError:
        return
    # A source that keeps what was not acknowledged still has those of before.
    assert rows in (OTHERS, MORE + OTHERS)
    assert again != end


@pytest.mark.parametrize("name", MOVING)
def test_what_comes_later_is_read_once_by_a_reader_that_goes_on_and_by_a_new_one(name: str, tmp_path: Path) -> None:
    moves = MOVING[name]
    context = SourceContext(str(tmp_path / "state"), 5)
    running = Planner(moves(tmp_path, 0).open(context), bounded=False)
    start = running.reader.initial_offset()
    first = running.next(start, None)
    assert rows_of(running.reader, running, start, first) == FIRST
    new = Planner(moves(tmp_path, 1).open(context), bounded=False)
    # The rows of a source in memory are its own: it does not grow.
    for planner in (new, *([] if name == "memory" else [running])):
        end = planner.next(first, None)
        assert end != first
        assert rows_of(planner.reader, planner, first, end) == MORE
        assert planner.next(end, None) == end


@pytest.mark.parametrize("name", HALVES)
def test_half_a_row_at_the_end_is_never_taken_for_a_row(name: str, tmp_path: Path) -> None:
    source = CASES[name].make(tmp_path)
    HALVES[name](tmp_path)
    try:
        reader = source.open(SourceContext(str(tmp_path / "state"), 5))
        planner = Planner(reader)
        start = planner.reader.initial_offset()
        rows = rows_of(reader, planner, start, planner.next(start, None))
    except SourceError:
        return
    assert sorted(rows, key=lambda row: row["id"]) == ROWS[:-1]


@pytest.mark.parametrize("moves", MOVING.values(), ids=MOVING)
def test_an_old_copy_of_the_checkpoint_takes_no_rows_for_others(
    moves: Callable[[Path, int], Source], tmp_path: Path
) -> None:
    check_old_copy(moves, tmp_path)


def test_the_source_is_a_value(source: Source) -> None:
    again = shipped(source)
    assert again == source
    assert hash(again) == hash(source)
    assert again.identity == source.identity
    assert repr(again) == repr(source)
    assert len(repr(source)) < 300


DECODED: dict[str, tuple[Callable[[Path, str], Source], list[str]]] = {
    "json files": (lambda folder, schema: FileSource(folder / "in", "json", schema), ['{"id": "x", "note": null}']),
    "json files, with unknown fields": (
        lambda folder, schema: FileSource(folder / "in", "json", schema, on_unknown="keep", include=["file", "row"]),
        ['{"id": "x", "other": [1]}'],
    ),
    "csv files": (lambda folder, schema: FileSource(folder / "in", "csv", schema), ["note,id", ",x"]),
}


@pytest.mark.parametrize("name", DECODED)
def test_a_bad_row_is_decoded_as_it_would_be_read_under_a_wider_schema(name: str, tmp_path: Path) -> None:
    make, lines = DECODED[name]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1").write_text("\n".join([*lines, ""]))
    narrow, wide = make(tmp_path, "id long, note string"), make(tmp_path, "id string, note string")
    (bad,) = [item for item in read_all(narrow, tmp_path / "narrow") if isinstance(item, BadRow)]
    (good,) = [item for item in read_all(wide, tmp_path / "wide") if isinstance(item, PositionedBatch)]
    decoder = wide.payload_decoder(bad.format, good.batch.schema)
    assert decoder is not None
    rows = decoder.sort([bad.payload.encode()])
    assert (rows.numbers, rows.faults) == ([0], {})
    # What the source adds to rows is not in the payload.
    added = {"file_path", "file_row"}
    expected = {name: value for name, value in good.batch.to_pylist()[0].items() if name not in added}
    assert rows.batch.to_pylist() == [expected]
    assert narrow.payload_decoder("text", good.batch.schema) is None


def read_all(source: Source, state: Path) -> list[PositionedBatch | BadRow]:
    reader = source.open(SourceContext(str(state)))
    start = reader.initial_offset()
    splits = reader.splits(start, reader.latest_offset(start, None, None))
    return [item for split in splits for item in reader.split_reader().read_tolerant(split)]


@pytest.mark.parametrize(
    "source",
    [
        KafkaSource("broker:9092", "events", schema="id string", include=["offset"]),
        WebhookSource(schema="id string", include=["received_at"]),
    ],
    ids=["kafka", "webhook"],
)
def test_a_bad_message_is_decoded_without_its_metadata(source: Source) -> None:
    schema = source.preview(SourceContext(""))
    assert schema is not None
    decoder = source.payload_decoder("json", schema)
    assert decoder is not None
    rows = decoder.sort([b'{"id": "x"}', b'{"other": 1}'])
    assert (rows.batch.to_pylist(), [*rows.faults]) == ([{"id": "x"}], [1])
    assert source.payload_decoder("text", schema) is None


def test_a_source_decodes_nothing_by_default() -> None:
    source = MemorySource([{"id": 1}])
    assert source.payload_decoder("json", pa.schema({"id": pa.int64()})) is None
