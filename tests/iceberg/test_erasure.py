"""Erasure: the rows are nowhere in the lake, by a scan of its bytes, and all other rows are there for every reader."""

from __future__ import annotations

import gzip
import io
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from tests import maintenance
from tests.drivers import Drivers
from tests.duck import query
from tests.iceberg import tables
from tests.iceberg.tables import Files
from tests.tiers import some
from tests.upserts import lake as upserts
from volley import ConfigError, StorageError, VolleyError
from volley.columns.exact import array_of
from volley.columns.letters import SCHEMA as LETTERS
from volley.iceberg import IcebergTable, SnapshotManager, TableRef, Upsert, orphan_files
from volley.iceberg.pyiceberg_private.access import stage
from volley.task.failpoints import ERASURE_POINTS, EXPIRY_POINTS

SCHEMA = pa.schema({"id": pa.string(), "part": pa.string(), "number": pa.int64()})
_UNCOMPRESSED = {"write.parquet.compression-codec": "uncompressed"}
GONE = "forget-me-entirely-0042"
"""Longer than the bounds of texts, which are cut."""


def name(number: int) -> str:
    return f"keep-me-{number:04}"


def row(id: str, number: int = 0, part: str = "a") -> dict[str, Any]:
    return {"id": id, "part": part, "number": number}


class Lake(tables.Lake):
    """A table whose rows a person wants to be forgotten, and what looks for them."""

    def __init__(self, folder: Path, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, version: int = 2) -> None:
        super().__init__(folder, SCHEMA, spec)
        with self.files.table.transaction() as transaction:
            transaction.set_properties({**_UNCOMPRESSED, "write.summary.partition-limit": "100"})
        if version == 3:
            IcebergTable(self.files.ref).upgrade(3)
            self.files.table.refresh()

    def data(self, *rows: dict[str, Any]) -> DataFile:
        self.files.table.refresh()
        file = self.files.data(list(rows))
        # Of pyiceberg's writer, of which only the partition is taken.
        for path in self.folder.rglob("00000-0-*.parquet"):
            path.unlink()
        return file

    def append(self, *rows: dict[str, Any]) -> DataFile:
        file = self.data(*rows)
        self.commit([file])
        return file

    def append_as(self, format: FileFormat, *rows: dict[str, Any]) -> None:
        """Commit a data file in an older format."""
        path = (
            Path(self.files.table.location().removeprefix("file://")) / f"data/old-{uuid.uuid4()}.{format.name.lower()}"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        ids = {"id": 1, "part": 2, "number": 3}
        if format == FileFormat.ORC:
            fields = [field.with_metadata({"iceberg.id": str(ids[field.name])}) for field in SCHEMA]
            orc.write_table(pa.Table.from_pylist([*rows], pa.schema(fields)), path)
        else:
            types = {"id": "string", "part": "string", "number": "long"}
            fields = [{"name": name, "type": ["null", kind], "field-id": ids[name]} for name, kind in types.items()]
            with path.open("wb") as file:
                fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, rows)
        size = path.stat().st_size
        data = DataFile.from_args(
            file_path=f"file://{path}",
            file_format=format,
            partition=Record(),
            record_count=len(rows),
            file_size_in_bytes=size,
        )
        data.spec_id = 0
        self.commit([data])

    def guilty(self, text: str = GONE[:16]) -> list[str]:
        return guilty(self.folder, text)


def guilty(folder: Path, *texts: str) -> list[str]:
    """The files whose bytes, decoded or as they are, or whose path has one of some texts; the catalog's own is none."""
    texts = texts or (GONE[:16],)
    paths = [path for path in folder.rglob("*") if not path.name.startswith("catalog.db")]
    named = [path for path in paths if any(text in str(path.relative_to(folder)) for text in texts)]
    return [str(path) for path in [*named, *(path for path in paths if path.is_file() and _has(path, texts))]]


def _has(path: Path, texts: Sequence[str]) -> bool:
    content = path.read_bytes()
    decoded = content
    if path.suffix == ".avro":
        decoded = repr([*fastavro.reader(io.BytesIO(content))]).encode()
    elif path.suffix == ".parquet":
        decoded = repr(pq.read_table(io.BytesIO(content)).to_pylist()).encode()
    elif path.suffix == ".orc":
        decoded = repr(orc.read_table(io.BytesIO(content)).to_pylist()).encode()
    elif path.suffix == ".gz":
        decoded = gzip.decompress(content)
    return any(text.encode() in content or text.encode() in decoded for text in texts)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "lake")
    yield made
    made.close()


@pytest.fixture
def parted(tmp_path: Path) -> Iterator[Lake]:
    spec = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name="id"))
    made = Lake(tmp_path / "lake", spec)
    yield made
    made.close()


def fill(lake: Lake) -> None:
    """History, deletes of every kind with the key, a branch with rows of its own, statistics, and orphans."""
    first = lake.append(row(name(1)), row(GONE), row(name(2)))
    second = lake.append(row(name(3)), row(name(4)))
    clean = lake.append(row(name(5)), row(name(6)))
    lake.view.compute_statistics()
    lake.commit([], [lake.files.positions((first, 1), (second, 0))])
    lake.append(row(GONE, 2), row(name(7)))
    lake.view.compute_statistics()
    # As Flink writes it: the file of deletes has the key.
    lake.commit([], [lake.files.keys(["id"], [row(GONE), row(name(6))], clean)])
    lake.append(row(GONE, 3), row(name(8)))
    SnapshotManager(lake.files.ref).create_branch("audit")
    lake.append(row(GONE, 4), row(name(9)))


IDS = [name(number) for number in (1, 2, 4, 5, 7, 8, 9)]


def test_the_rows_are_nowhere(lake: Lake) -> None:
    fill(lake)
    assert lake.guilty()
    erasure = lake.view.erase([{"id": GONE}])
    assert erasure.rows == {"main": 2, "audit": 1}
    assert erasure.delete_files_removed == 2
    assert erasure.is_complete
    assert erasure.proven_at == lake.files.ref.load().metadata_location
    assert lake.guilty() == []
    lake.check_others(IDS)
    audit = lake.files.ref.load().scan().use_ref("audit").to_arrow()["id"].to_pylist()
    assert sorted(audit) == sorted(set(IDS) - {name(9)})
    # A second erasure finds nothing to do.
    before = lake.files.ref.load().metadata_location
    again = lake.view.erase(pa.table({"id": [GONE]}))
    assert (again.rows, again.snapshots, again.expired, again.files_deleted) == ({"main": 0, "audit": 0}, (), (), ())
    assert lake.files.ref.load().metadata_location == before


def test_history_without_the_rows_stays(lake: Lake) -> None:
    lake.append(row(name(1)))
    before = lake.files.ref.load().current_snapshot()
    assert before is not None
    lake.append(row(GONE))
    lake.append(row(name(2)))
    erasure = lake.view.erase([{"id": GONE}])
    assert len(erasure.expired) == 2
    assert lake.view.at(before.snapshot_id).to_arrow()["id"].to_pylist() == [name(1)]
    assert lake.guilty() == []
    lake.check_others([name(1), name(2)])


def test_files_without_the_rows_that_go_with_the_history(lake: Lake) -> None:
    """The bounds of a removed file are cut: once it is gone, they may be those of the row."""
    like = GONE[:-1] + "x"
    for id in (GONE, like, name(1)):
        lake.files.ref.load().append(pa.Table.from_pylist([row(id)], SCHEMA))
    for id in (GONE, like):
        lake.files.ref.load().delete(f"id == '{id}'")
    erasure = lake.view.erase([{"id": GONE}])
    assert (erasure.rows, erasure.is_complete) == ({"main": 0}, True)
    assert lake.guilty(GONE) == []
    lake.check_others([name(1)])


def test_a_dry_run_changes_nothing(lake: Lake) -> None:
    fill(lake)
    before = lake.files.ref.load().metadata_location
    planned = lake.view.erase([{"id": GONE}], dry_run=True)
    assert (planned.rows, planned.files_rewritten, planned.dry_run) == ({"main": 2, "audit": 1}, 11, True)
    assert lake.files.ref.load().metadata_location == before
    done = lake.view.erase([{"id": GONE}])
    assert (done.rows, done.files_rewritten) == (planned.rows, planned.files_rewritten)
    assert set(planned.expired) <= set(done.expired)


def test_a_key_that_is_a_partition(parted: Lake) -> None:
    """Its name is in paths, in partitions of manifests and in summaries."""
    parted.append(row(name(1)))
    parted.append(row(GONE, 1))
    parted.append(row(GONE, 2))
    # As a writer does that has a folder for each partition.
    (parted.folder / "db" / "t" / "data" / f"id={GONE}").mkdir(parents=True, exist_ok=True)
    parted.view.compact()
    assert parted.guilty()
    assert parted.view.erase([{"id": GONE}]).rows == {"main": 2}
    assert parted.guilty() == []
    parted.check_others([name(1)])


def test_keys_of_several_columns(lake: Lake) -> None:
    """Rows that are equal in one of them alone stay, and are no reason for the proof to fail."""
    lake.append(row(name(1), 1), row(GONE, 7), row(name(2), 7), row(GONE, 8))
    erasure = lake.view.erase([{"number": 7, "id": GONE}])
    assert erasure.rows == {"main": 1}
    rows = lake.files.ref.load().scan().to_arrow().to_pylist()
    assert sorted((each["id"], each["number"]) for each in rows) == [(GONE, 8), (name(1), 1), (name(2), 7)]


def test_rows_of_format_3_keep_their_ids(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", version=3)
    lake.append(row(name(1)), row(GONE), row(name(2)))
    lake.append(row(name(3)))
    before = lake.view.rows.include("row_id").to_arrow().to_pylist()
    assert lake.view.erase([{"id": GONE}]).rows == {"main": 1}
    after = lake.view.rows.include("row_id").to_arrow().to_pylist()
    assert sorted(after, key=str) == sorted((each for each in before if each["id"] != GONE), key=str)
    assert lake.guilty() == []
    lake.close()


def test_vectors_of_other_files_stay(tmp_path: Path) -> None:
    """Two vectors are in one file; one of them, and a row on a branch, are of the rows that go."""
    schema = SCHEMA.append(pa.field("op", pa.string()))
    mode = Upsert(["id"], op_field="op", strategy="merge_on_read")
    with closing(upserts.Lake(tmp_path, mode, schema, **{"format-version": "3"}, **_UNCOMPRESSED)) as lake:
        lake.epoch([row(name(1)), row(GONE), row(name(2))])
        lake.epoch([row(name(3)), row(name(4)), row(name(5))])
        lake.epoch([row(GONE, 1), row(name(3), 1), {"id": name(4), "op": "d"}])
        view, before = IcebergTable(lake.config.ref), _with_ids(lake)
        deletes = lake.table().inspect.delete_files()["file_path"].to_pylist()
        assert [Path(path).suffix for path in deletes] == [".puffin"] * 2
        assert len({*deletes}) == 1
        SnapshotManager(lake.config.ref).create_branch("audit")
        lake.epoch([{"id": GONE, "op": "d"}])
        assert view.erase([{"id": GONE}]).rows == {"main": 0, "audit": 1}
        assert guilty(lake.folder) == []
        del before[GONE]
        assert _with_ids(lake) == before
        audit = IcebergTable(lake.config.ref.with_branch("audit")).to_arrow()
        assert sorted(audit["id"].to_pylist()) == sorted(before)
        assert lake.table().inspect.delete_files().num_rows == 1
        lake.epoch([row(name(5), 1), row(GONE, 2)])
        assert {id: number for id, (number, _) in _with_ids(lake).items()} == {
            **{id: number for id, (number, _) in before.items()},
            **{name(5): 1, GONE: 2},
        }


def _with_ids(lake: upserts.Lake) -> dict[str, tuple[int, int]]:
    """The number of each row and its id, by DuckDB."""
    rows = query(f"select id, number, _row_id from iceberg_scan('{lake.table().metadata_location}')").fetchall()
    assert len({row_id for _, _, row_id in rows}) == len(rows)
    return {id: (number, row_id) for id, number, row_id in rows}


@pytest.mark.parametrize("format", [FileFormat.ORC, FileFormat.AVRO])
def test_data_files_of_older_formats(lake: Lake, format: FileFormat) -> None:
    lake.append_as(format, row(name(1)), row(GONE), row(name(2)))
    lake.append_as(format, row(name(3)))
    lake.append(row(GONE, 2), row(name(4)))
    assert len(lake.guilty()) > 1
    erasure = lake.view.erase([{"id": GONE}])
    assert (erasure.rows, erasure.is_complete) == ({"main": 2}, True)
    assert lake.guilty() == []
    assert sorted(lake.view.to_arrow()["id"].to_pylist()) == [name(number) for number in (1, 2, 3, 4)]


def test_a_tag_is_an_error_before_anything_changes(lake: Lake) -> None:
    lake.append(row(GONE), row(name(1)))
    SnapshotManager(lake.files.ref).create_tag("audited")
    lake.append(row(name(2)))
    SnapshotManager(lake.files.ref).create_tag("later")
    before = lake.files.ref.load().metadata_location
    with pytest.raises(ConfigError, match="have the tags audited, later"):
        lake.view.erase([{"id": GONE}])
    assert lake.files.ref.load().metadata_location == before
    assert lake.view.erase([{"id": GONE}], drop_tags=True).tags == ("audited", "later")
    assert lake.guilty() == []
    lake.check_others([name(1), name(2)])


def test_what_a_job_has_not_read_stays_and_is_named(lake: Lake) -> None:
    lake.append(row(GONE), row(name(1)))
    hold = "volley-hold-0123456789abcdef"
    head = lake.files.ref.load().current_snapshot()
    assert head is not None

    def move(snapshot_id: int) -> None:
        table = lake.files.ref.load()
        transaction = table.transaction()
        tag = {"ref-name": hold, "type": "tag", "snapshot-id": snapshot_id}
        stage(transaction, SetSnapshotRefUpdate.model_validate(tag))
        transaction.commit_transaction()

    move(head.snapshot_id)
    with pytest.raises(StorageError, match=f"{hold}: a job has not read"):
        lake.view.erase([{"id": GONE}])
    lake.check_others([name(1)])
    assert lake.guilty()
    # What the job reads: the row is deleted.
    changes = lake.view.changes(head.snapshot_id).to_arrow().to_pylist()
    assert [(each["_change"], each["id"]) for each in changes] == [("delete", GONE)]
    erased = lake.files.ref.load().current_snapshot()
    assert erased is not None
    move(erased.snapshot_id)
    assert lake.view.erase([{"id": GONE}]).is_complete
    assert lake.guilty() == []


def letters(lake: Lake) -> TableRef:
    """A table of dead letters with the key in a payload, in an error, and in no way."""
    ref = lake.files.ref.beside("letters")
    table = lake.files.catalog.create_table("db.letters", LETTERS, properties=_UNCOMPRESSED)
    texts = [
        {"payload": f'{{"id": "{GONE}", "number": "x"}}', "error": "no number"},
        {"payload": "…", "error": f"{GONE!r} is no number"},
        {"payload": f'{{"id": "{GONE}x"}}', "error": "no number"},
    ]
    for text in texts:
        table.append(pa.Table.from_pylist([text], LETTERS))
    return ref


def test_dead_letters(lake: Lake) -> None:
    lake.append(row(GONE), row(name(1)))
    bad = letters(lake)
    erasure = lake.view.erase([{"id": GONE}], letters=[bad])
    (of_letters,) = erasure.letters
    assert of_letters.rows == {"main": 2}
    assert [each["payload"] for each in bad.load().scan().to_arrow().to_pylist()] == [f'{{"id": "{GONE}x"}}']
    assert lake.guilty(f'{GONE}"') == lake.guilty(f"{GONE}'") == []


def orphan(lake: Lake) -> Path:
    """A file of a killed task."""
    path = Path(lake.data(row(GONE), row(name(9))).file_path.removeprefix("file://"))
    return path.rename(path.with_name("of-a-killed-task.parquet"))


def test_young_orphans_are_named_and_old_ones_deleted(lake: Lake) -> None:
    lake.append(row(GONE), row(name(1)))
    path = orphan(lake)
    clean = Path(lake.data(row(name(7))).file_path.removeprefix("file://"))
    cut = path.with_name("cut.parquet")
    cut.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StorageError, match=r"(?s)of-a-killed-task.parquet: it belongs to no snapshot"):
        lake.view.erase([{"id": GONE}])
    erasure = lake.view.erase([{"id": GONE}], orphans_older_than="0s")
    assert {Path(each).name for each in erasure.files_deleted} == {path.name, cut.name}
    assert clean.exists()
    assert lake.guilty() == []


def test_changes_that_a_killed_task_has_left(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("op", pa.string()))
    mode = Upsert(["id"], op_field="op", strategy="merge_on_read")
    with closing(upserts.Lake(tmp_path, mode, schema, **_UNCOMPRESSED)) as lake:
        lake.epoch([row(name(1)), row(name(2))])
        dead = lake.driver()
        dead.last_epoch(lake.query)
        lake.write(dead, 7, [row(GONE)], [row(name(3))])
        lake.write(dead, 8, [row(GONE, 2), row(name(4))])
        before = {*lake.files()}
        (cut,) = (
            path for path in before if GONE.encode() in path.read_bytes() and name(4).encode() in path.read_bytes()
        )
        cut.write_bytes(cut.read_bytes()[:-20])
        view = IcebergTable(lake.config.ref)
        with pytest.raises(StorageError, match=r"-changes: it belongs to no snapshot"):
            view.erase([{"id": GONE}])
        erasure = view.erase([{"id": GONE}], orphans_older_than="0s")
        assert (len(erasure.files_deleted), erasure.is_complete) == (2, True)
        assert guilty(lake.folder) == []
        assert len(before - {*lake.files()}) == 2


def test_metadata_of_a_commit_that_has_failed(parted: Lake) -> None:
    """Its summary names the partition."""
    parted.append(row(name(1)))
    parted.append(row(GONE, 1))
    written = Path(parted.files.ref.load().metadata_location.removeprefix("file://"))
    left = written.with_name("00009-of-a-failed-commit.metadata.json")
    left.write_bytes(written.read_bytes())
    assert str(left) in parted.guilty()
    with pytest.raises(StorageError, match=r"failed-commit.metadata.json: it belongs to no snapshot"):
        parted.view.erase([{"id": GONE}])
    assert parted.view.erase([{"id": GONE}], orphans_older_than="0s").is_complete
    assert parted.guilty() == []


def test_the_proof_finds_what_comes_meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.append(row(GONE), row(name(1)))

    def reached(point: str, number: int) -> None:
        if point == "before-erasure-of-orphans":
            lake.append(row(GONE, 5), row(name(5)))

    monkeypatch.setattr("volley.iceberg.maintain.erasure.reach", reached)
    with pytest.raises(StorageError, match="it has such rows"):
        lake.view.erase([{"id": GONE}])
    monkeypatch.undo()
    assert lake.view.erase([{"id": GONE}]).rows == {"main": 1}
    assert lake.guilty() == []
    lake.check_others([name(1), name(5)])


def test_what_others_write_meanwhile_stays(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lake.append(row(GONE), row(name(1)), row(name(2)))
    others: list[Callable[[], object]] = [
        lambda: lake.append(row(GONE, 5), row(name(5))),
        lambda: lake.commit([], [lake.files.positions((first, 2))]),
    ]

    def reached(point: str, number: int) -> None:
        if point == "before-erasure" and others:
            others.pop()()

    monkeypatch.setattr("volley.iceberg.maintain.erasing.reach", reached)
    assert lake.view.erase([{"id": GONE}]).rows == {"main": 2}
    assert lake.guilty() == []
    lake.check_others([name(1), name(5)])
    assert not [path for path in orphan_files(lake.files.ref, 0) if "/erasure-" in path]


@pytest.mark.parametrize("point", some([*ERASURE_POINTS, *EXPIRY_POINTS], by=lambda point: point in EXPIRY_POINTS))
def test_an_erasure_that_dies_is_finished_by_the_next(lake: Lake, point: str) -> None:
    fill(lake)
    number = 1 if point == "in-deletion" else 0
    Drivers().die(f"{point}@{number}", maintenance.erase, lake.files.ref, GONE)
    assert lake.view.erase([{"id": GONE}]).proven_at
    assert lake.guilty() == []
    lake.check_others(IDS)


def test_what_cant_be_read_is_an_error_before_anything_changes(lake: Lake) -> None:
    lake.append(row(GONE), row(name(1)))
    damaged = lake.append(row(name(2)), row(name(3)))
    lake.append(row(GONE))
    path = Path(damaged.file_path.removeprefix("file://"))
    whole = path.read_bytes()
    path.write_bytes(whole[:40])
    before = lake.files.ref.load().metadata_location
    with pytest.raises(VolleyError, match=path.name):
        lake.view.erase([{"id": name(3)}])
    assert lake.files.ref.load().metadata_location == before
    path.write_bytes(whole)
    assert lake.view.erase([{"id": name(3)}]).rows == {"main": 1}


def test_files_that_other_tables_may_need_are_refused(lake: Lake) -> None:
    lake.append(row(GONE))
    with lake.files.ref.load().transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    with pytest.raises(ConfigError, match=r"gc\.enabled is false"):
        lake.view.erase([{"id": GONE}])


def test_position_deletes_with_copies_of_the_rows(lake: Lake) -> None:
    """As Spark could be asked to write them."""
    file = lake.append(row(GONE), row(name(1)))
    deletes = lake.files.positions((file, 0))
    path = Path(deletes.file_path.removeprefix("file://"))
    rows = pq.read_table(path).append_column("row", pa.array([row(GONE)]))
    pq.write_table(rows, path)
    deletes._data[5] = path.stat().st_size
    lake.commit([], [deletes])
    erasure = lake.view.erase([{"id": GONE}])
    assert (erasure.rows, erasure.delete_files_removed) == ({"main": 0}, 1)
    assert lake.guilty() == []
    lake.check_others([name(1)])


KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "number": (pa.int32(), [7, 8]),
    "time": (pa.timestamp("us", "UTC"), [datetime(2026, 1, 2, 3, tzinfo=UTC), datetime(2026, 1, 2, 4, tzinfo=UTC)]),
    "date": (pa.date32(), [date(2026, 1, 2), date(2026, 1, 3)]),
    "decimal": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("1.51")]),
    "double": (pa.float64(), [0.1, 0.2]),
    "uuid": (pa.uuid(), [uuid.UUID(int=1 << 127), uuid.UUID(int=5)]),
    "bytes": (pa.binary(), [b"x" * 20, b"y" * 20]),
}


@pytest.mark.parametrize("kind", some(KINDS))
def test_keys_of_each_type(kind: str, tmp_path: Path) -> None:
    data_type, (gone, kept) = KINDS[kind]
    files = Files(tmp_path / "lake", pa.schema({"key": data_type, "other": pa.string()}))
    files.commit([files.data([{"key": gone, "other": "x"}, {"key": kept, "other": "y"}])])
    for path in tmp_path.rglob("00000-0-*.parquet"):
        path.unlink()
    erasure = IcebergTable(files.ref).erase([{"key": gone}])
    assert (erasure.rows, bool(erasure.proven_at)) == ({"main": 1}, True)
    assert files.ref.load().scan().to_arrow()["other"].to_pylist() == ["y"]
    text = gone.decode() if isinstance(gone, bytes) else str(gone)
    assert IcebergTable(files.ref).erase([{"key": gone if kind == "double" else text}]).rows == {"main": 0}
    again = IcebergTable(files.ref).erase(pa.table({"key": array_of([gone], data_type)}))
    assert again.rows == {"main": 0}
    files.close()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([{"nme": "x"}], "no column 'nme' that keys can have"),
        ([{"number": "seven"}], "a key does not fit column 'number'"),
        ([{"number": True}], "a key does not fit column 'number'"),
        ([{"id": None}], "a key has null in column 'id'"),
        ([{"id": "x"}, {"number": 1}], "a key has the columns number"),
        (pa.table({"id": pa.array([], pa.string())}), "keys are empty"),
    ],
)
def test_wrong_keys(lake: Lake, keys: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        lake.view.erase(keys)
