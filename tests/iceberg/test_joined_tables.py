"""Which rows of an Iceberg table each epoch of a job is joined with, whatever becomes of the table."""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import LongType

from tests.servers.seaweed import SeaweedProcess
from tests.servers.shared import own_server
from volley import (
    CatalogUnreachableError,
    ConfigError,
    Environment,
    MemorySource,
    PlanError,
    SourceError,
    TableNotFoundError,
)
from volley.engine.joins import JoinedTables
from volley.engine.run import through_outages
from volley.iceberg import IcebergSource, IcebergSourceConfig, IcebergStorage, IcebergTable, Incremental, TableRef
from volley.iceberg.read.dimension import IcebergDimensionReader
from volley.plan import nodes
from volley.storage.state_formats import JOIN_PIN
from volley.stream.stream import DataStream
from volley.task import joined_rows

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("rank", pa.int32())])


@pytest.fixture
def ref(tmp_path: Path) -> TableRef:
    ref = TableRef("db", "people", IcebergStorage.Local(str(tmp_path / "lake")))
    catalog = ref.load_catalog()
    catalog.create_namespace("db")
    catalog.create_table("db.people", SCHEMA).append(people("Ada"))
    return ref


def people(name: str) -> pa.Table:
    return pa.table({"id": [1], "name": [name], "rank": [1]}, SCHEMA)


def joined(table: object, **options: Any) -> DataStream:
    return Environment().from_source(MemorySource([{"id": 1}])).join(table, on="id", **options)


class Job:
    """The tables of a job of one driver."""

    def __init__(self, folder: Path, *streams: DataStream) -> None:
        self.tables = JoinedTables("job", str(folder / "checkpoint/volley/joins"))
        self.tables.open([stream._node for stream in streams])
        self.folder = folder / "checkpoint"

    def names(self, epoch: int) -> list[str]:
        """Give an epoch its rows, and return the names in them."""
        self.tables.pin(epoch)
        (pin,) = self.folder.rglob(f"{epoch}.json")
        found = {name for path in pin.parent.glob("*.arrow") for name in self._names(path)}
        return sorted(found)

    def _names(self, path: Path) -> list[str]:
        rows = joined_rows.read_index(str(path)).rows
        return rows.column("name").to_pylist() if "name" in rows.schema.names else []


def test_an_epoch_keeps_its_rows(ref: TableRef, tmp_path: Path) -> None:
    assert Job(tmp_path, joined(IcebergTable(ref))).names(0) == ["Ada"]
    ref.load().overwrite(people("Bob"))
    again = Job(tmp_path, joined(IcebergTable(ref)))
    assert again.names(0) == ["Ada"]
    assert again.names(1) == ["Ada", "Bob"]
    # Rows that no epoch needs which may be repeated are deleted.
    assert again.names(2) == ["Ada", "Bob"]
    assert again.names(3) == ["Bob"]
    assert sorted(path.name for path in again.folder.rglob("*.json")) == ["1.json", "2.json", "3.json"]


def test_rows_are_read_when_the_table_has_a_new_snapshot(ref: TableRef, tmp_path: Path) -> None:
    job = Job(tmp_path, joined(IcebergTable(ref)))
    with patch.object(IcebergDimensionReader, "read", autospec=True, side_effect=IcebergDimensionReader.read) as read:
        job.names(0)
        job.names(1)
        assert read.call_count == 1
        ref.load().overwrite(people("Bob"))
        assert job.names(2) == ["Ada", "Bob"]
        assert read.call_count == 2


@pytest.fixture
def own_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedProcess]:
    """A catalog that its test may stop."""
    with own_server(SeaweedProcess(tmp_path_factory.mktemp("own"))) as process:
        yield process


def test_an_epoch_waits_while_the_catalog_can_not_be_reached(own_catalog: SeaweedProcess, tmp_path: Path) -> None:
    ref = own_catalog.server.config("people").ref
    catalog = ref.load_catalog()
    catalog.create_namespace("db")
    catalog.create_table("db.people", SCHEMA).append(people("Ada"))
    job, outages = Job(tmp_path, joined(IcebergTable(ref))), []

    def epoch() -> list[str]:
        try:
            return job.names(0)
        except CatalogUnreachableError as error:
            outages.append(error)
            own_catalog.start()
            raise

    own_catalog.stop()
    assert through_outages(epoch, 60.0, threading.Event(), "job") == ["Ada"]
    assert len(outages) == 1


def test_joins_of_one_table_have_one_version(ref: TableRef, tmp_path: Path) -> None:
    rows = IcebergTable(ref).rows
    ref.load().append(pa.table({"id": [2], "name": ["Bob"], "rank": [2]}, SCHEMA))
    job = Job(tmp_path, joined(rows.filter("rank = 1")), joined(rows.filter("rank = 2")), joined(ref, columns=["rank"]))
    # Each has the rows of its own filter.
    assert job.names(0) == ["Ada", "Bob"]
    assert len(list(job.folder.rglob("*.json"))) == 1
    assert len(list(job.folder.rglob("*.arrow"))) == 3


def test_two_tables_of_the_program_with_one_name_are_told_apart(tmp_path: Path) -> None:
    one, other = ([{"id": 1, "name": name}] for name in ("Ada", "Bob"))
    with pytest.raises(
        PlanError, match=r"can't tell apart: both are memory:memory: \['id', 'name'\]\n.*give each a name"
    ):
        Job(tmp_path, joined(one), joined(other))
    named = Job(tmp_path, joined(one), joined(MemorySource(other, name="others")), joined([{"id": 1, "rank": 1}]))
    named.tables.pin(0)
    assert len(list(named.folder.rglob("*.arrow"))) == 3


def test_a_changed_join_is_repeated_with_the_version_of_the_epoch(ref: TableRef, tmp_path: Path) -> None:
    Job(tmp_path, joined(ref, columns=["rank"])).names(0)
    ref.load().overwrite(people("Bob"))
    assert Job(tmp_path, joined(ref)).names(0) == ["Ada"]


def test_the_first_of_two_drivers_decides(ref: TableRef, tmp_path: Path) -> None:
    first, second = Job(tmp_path, joined(ref)), Job(tmp_path, joined(ref))
    version = IcebergDimensionReader.version

    def slow(reader: IcebergDimensionReader) -> object:
        old = version(reader)
        ref.load().overwrite(people("Bob"))
        with patch.object(IcebergDimensionReader, "version", version):
            first.names(0)
        return old

    with patch.object(IcebergDimensionReader, "version", slow):
        second.tables.pin(0)
    (pin,) = second.folder.rglob("0.json")
    current = ref.load().current_snapshot()
    assert current is not None
    assert JOIN_PIN.load(pin.read_bytes(), str(pin))["snapshot"] == current.snapshot_id


def _widen(table: Table) -> None:
    with table.update_schema() as update:
        update.update_column("rank", LongType())
    table.append(pa.table({"id": pa.array([2], pa.int32()), "name": ["Bob"], "rank": [1 << 40]}))


def _drop_column(table: Table) -> None:
    with table.update_schema() as update:
        update.delete_column("name")


def _add_column(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("email", LongType())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (_drop_column, ConfigError, "has no column 'name'"),
        (_widen, SourceError, "column 'rank' of type int64 does not fit int"),
        (lambda table: table.catalog.drop_table("db.people"), TableNotFoundError, "db.people"),
    ],
)
def test_what_no_longer_fits_the_join_is_named(
    ref: TableRef, tmp_path: Path, change: Callable[[Table], None], error: type[Exception], message: str
) -> None:
    job = Job(tmp_path, joined(ref))
    job.names(0)
    change(ref.load())
    if change is _drop_column:
        ref.load().append(pa.table({"id": [2], "rank": [2]}, pa.schema([SCHEMA.field(0), SCHEMA.field(2)])))
    with pytest.raises(error, match=message):
        job.tables.pin(1)


def test_columns_that_the_join_does_not_know_do_not_matter(ref: TableRef, tmp_path: Path) -> None:
    job = Job(tmp_path, joined(ref))
    _add_column(ref.load())
    assert job.names(0) == ["Ada"]


def test_a_table_without_snapshots_and_one_that_is_pinned(ref: TableRef, tmp_path: Path) -> None:
    catalog = ref.load_catalog()
    catalog.create_table("db.empty", SCHEMA)
    assert Job(tmp_path / "empty", joined(ref.beside("empty"))).names(0) == []
    first = ref.load().current_snapshot()
    assert first is not None
    ref.load().overwrite(people("Bob"))
    assert Job(tmp_path / "pinned", joined(IcebergTable(ref).at(first.snapshot_id))).names(0) == ["Ada"]


def test_a_table_that_is_too_large_pins_nothing(ref: TableRef, tmp_path: Path) -> None:
    job = Job(tmp_path, joined(ref, max_bytes=4))
    with pytest.raises(PlanError, match="more than 4 bytes"):
        job.tables.pin(0)
    assert not list(job.folder.rglob("*.json"))


def test_rows_of_a_table_are_shown_without_a_job(ref: TableRef) -> None:
    source = IcebergSource(IcebergSourceConfig(ref).with_columns(["id", "name"]))
    assert joined(source).head().to_pylist() == [{"id": 1, "name": "Ada"}]
    assert joined(ref).columns == ["id", "name", "rank"]


def test_a_stream_of_a_table_is_no_table(ref: TableRef) -> None:
    with pytest.raises(ConfigError, match="as it is in each epoch, not as a stream"):
        joined(IcebergSource(IcebergSourceConfig(ref).with_mode(Incremental())))


def test_a_machine_has_one_copy_of_remote_rows(ref: TableRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "machine"))
    (tmp_path / "machine").mkdir()
    tables = JoinedTables("job", f"memory://checkpoint-{uuid.uuid4()}/volley/joins")
    (join,) = tables.open([joined(ref)._node])
    assert isinstance(join, nodes.Join)
    names = []
    with patch.object(joined_rows, "task_context") as context:
        task = context.return_value
        for epoch, name in enumerate(["Ada", "Ada", "Bob"]):
            if name == "Bob":
                ref.load().overwrite(people("Bob"))
            tables.pin(epoch)
            task.getLocalProperty.return_value, task.taskAttemptId.return_value = str(epoch), epoch
            assert join.rows is not None
            names += join.rows.buckets().load(0).rows.column("name").to_pylist()
    assert names == ["Ada", "Ada", "Bob"]
    assert len(list((tmp_path / "machine").rglob("*.arrow"))) == 1
