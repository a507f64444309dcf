"""Upserts, streams of changes, views and upgraded tables on each catalog, read by another client."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fastavro
import pyarrow as pa
import pytest
from pyarrow import fs
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.services import lakes
from tests.services.lakes import Lake
from tests.upserts.lake import Lake as Changed
from tests.upserts.lake import shipped
from volley import ConfigError, Environment, IcebergSinkConfig, MaterializedView, Metrics, SourceContext, count, sum_
from volley.iceberg import IcebergSource, IcebergSourceConfig, IcebergTable, Incremental, SnapshotManager, Upsert
from volley.iceberg.storage.values import LocalStorage

WRITTEN = pa.schema({"id": pa.int64(), "city": pa.string(), "cents": pa.int64()})
CHANGES = WRITTEN.append(pa.field("op", pa.string()))
ROWS: list[dict[str, Any]] = [{"id": number, "city": "ab"[number % 2], "cents": 10 * number} for number in range(6)]
NEXT: list[dict[str, Any]] = [
    {"id": 1, "city": "c", "cents": 7, "op": "u"},
    {"id": 2, "city": None, "cents": None, "op": "d"},
    {"id": 9, "city": "a", "cents": 5, "op": "u"},
]
CHANGED = [ROWS[0], {"id": 1, "city": "c", "cents": 7}, *ROWS[3:], {"id": 9, "city": "a", "cents": 5}]


class Job(Changed):
    """A job that changes a table of any catalog by key, without Spark."""

    def __init__(self, config: IcebergSinkConfig, strategy: Any = "auto", sequence: str | None = None) -> None:
        mode = Upsert("id", op_field="op", strategy=strategy, sequence=sequence)
        self.config = config.with_commit_mode(mode)
        self.schema, self.metrics = CHANGES, Metrics()
        self._opened: list[Any] = []
        self._next = 0


class Copy:
    """A copy by key of a table, as a stream of its changes gives it; a change that does not fit it is an error."""

    def __init__(self, config: IcebergSinkConfig, folder: Path) -> None:
        follow = IcebergSourceConfig(config.ref).with_mode(Incremental(0.001)).with_changes("follow", "id")
        self._reader = IcebergSource(follow).open(SourceContext(str(folder)))
        self._offset = self._reader.initial_offset()
        self._rows: dict[int, dict[str, Any]] = {}

    def rows(self) -> list[dict[str, Any]]:
        """Follow the table, and return its rows."""
        while (end := json.loads(json.dumps(self._reader.latest_offset(self._offset, None, None)))) != self._offset:
            for split in shipped(self._reader.splits(self._offset, end)):
                for batch in shipped(self._reader.split_reader()).read(split):
                    for change in batch.to_pylist():
                        self._apply(change)
            self._offset = end
            self._reader.committed(end)
        return [self._rows[key] for key in sorted(self._rows)]

    def _apply(self, change: dict[str, Any]) -> None:
        row = {name: change[name] for name in WRITTEN.names}
        if change["_change"] in ("delete", "update_before"):
            assert self._rows.pop(row["id"]) == row
        else:
            assert row["id"] not in self._rows
            self._rows[row["id"]] = row


@pytest.fixture(scope="module", params=[*lakes.catalogs(), *lakes.with_version_3()])
def lake(request: pytest.FixtureRequest) -> Lake:
    """Each catalog in turn."""
    made: Lake = request.param(request)
    return made


def upserts(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**row, "op": "u"} for row in rows]


def read(config: IcebergSinkConfig) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = IcebergTable(config.ref).to_arrow().sort_by("id").to_pylist()
    return rows


@pytest.mark.parametrize("strategy", ["merge_on_read", "copy_on_write"])
def test_rows_are_changed_by_key_and_followed(lake: Lake, tmp_path: Path, strategy: Any) -> None:
    job = Job(lake.config(), lake.strategy(strategy))
    job.epoch(upserts(*ROWS[:3]), upserts(*ROWS[3:]))
    assert lake.rows(job.config) == ROWS
    if lake.name == "nessie":
        with pytest.raises(ConfigError, match="follow"):
            Copy(job.config, tmp_path)
    else:
        copy = Copy(job.config, tmp_path)
        assert copy.rows() == ROWS
    job.epoch(NEXT)
    assert lake.rows(job.config) == read(job.config) == CHANGED
    if lake.name != "nessie":
        assert copy.rows() == CHANGED


def test_rows_come_out_of_order_and_deletions_are_remembered(lake: Lake) -> None:
    """The first epoch of an empty table has deletions alone."""
    job = Job(lake.config(), lake.strategy("auto"), sequence="cents")
    deletion = {"id": 1, "city": None, "cents": 50, "op": "d"}
    if lake.name == "nessie":
        with pytest.raises(ConfigError, match="remembers changes"):
            job.epoch([deletion])
        return
    job.epoch([deletion])
    assert lake.rows(job.config) == []
    newest = {"id": 2, "city": "b", "cents": 9}
    job.epoch(upserts({"id": 1, "city": "a", "cents": 49}, newest))
    job.epoch([deletion, *upserts({"id": 2, "city": "a", "cents": 8}, {"id": 3, "city": "c", "cents": 1})])
    job.epoch([{"id": 3, "city": None, "cents": 2, "op": "d"}])
    job.epoch(upserts({"id": 3, "city": "c", "cents": 1}))
    assert lake.rows(job.config) == read(job.config) == [newest]
    assert set(lake.table(job.config).refs()) == {"main", "volley-tombstones-main"}
    job.epoch(upserts({"id": 1, "city": "a", "cents": 51}))
    assert [row["id"] for row in lake.rows(job.config)] == [1, 2]


def revenue(config: IcebergSinkConfig) -> MaterializedView:
    query = Environment().from_source(IcebergSource(IcebergSourceConfig(config.ref)))
    totals = query.key_by("city").aggregate(orders=count(), cents=sum_("cents"))
    into = IcebergSinkConfig.from_table(config.ref.beside(f"{config.table}v"))
    return MaterializedView("revenue", totals, into=into)


def test_a_view_is_kept_up_to_date(lake: Lake) -> None:
    job = Job(lake.config(), lake.strategy("auto"))
    job.epoch(upserts(*ROWS))
    view = revenue(job.config)

    def result() -> list[tuple[Any, ...]]:
        rows = lake.open_plain().load_table(view.into.ref.identifier).scan().to_arrow().to_pylist()
        return sorted((row["city"], row["orders"], row["cents"]) for row in rows)

    view.refresh()
    assert result() == [("a", 3, 60), ("b", 3, 90)]
    job.epoch(NEXT)
    refresh = view.refresh(mode="incremental")
    assert result() == [("a", 3, 45), ("b", 2, 80), ("c", 1, 7)]
    assert view.status().is_current
    assert refresh.mode == ("full" if lake.name == "nessie" else "incremental")


GONE = "forget-me-entirely-0042"
"""Longer than the bounds of texts, which are cut."""


def test_rows_are_erased(lake: Lake) -> None:
    """From history, deletes and branches: their bytes are in no object of the storage."""
    job = Job(lake.config().with_table_properties({"write.parquet.compression-codec": "none"}), lake.strategy("auto"))
    job.epoch(upserts(*ROWS, {"id": 6, "city": GONE, "cents": 1}))
    job.epoch([*upserts({"id": 7, "city": GONE, "cents": 2}), {"id": 6, "city": None, "cents": None, "op": "d"}])
    assert with_text(lake.table(job.config), GONE)
    view = IcebergTable(job.config.ref)
    if lake.name == "nessie":
        with pytest.raises(ConfigError, match=r"gc\.enabled is false"):
            view.erase([{"id": 7}])
        return
    SnapshotManager(job.config.ref).create_branch("audit")
    job.epoch(upserts({"id": 8, "city": GONE, "cents": 3}))
    erasure = view.erase([{"id": 6}, {"id": 7}, {"id": 8}])
    assert erasure.is_complete
    assert erasure.rows == {"main": 2, "audit": 1}
    assert lake.rows(job.config) == read(job.config) == ROWS
    assert with_text(lake.table(job.config), GONE) == []
    assert with_text(lake.table(job.config), job.config.table)


def with_text(table: Table, text: str) -> list[str]:
    """The objects below a table's place whose bytes have a text, those of manifests decoded."""
    store, path = _place_of(table)
    return [path for path in _files(store, path) if text.encode() in decoded(store, path)]


def objects_of(table: Table) -> list[str]:
    """The objects below a table's place."""
    return _files(*_place_of(table))


def _files(store: fs.FileSystem, path: str) -> list[str]:
    return [
        file.path
        for file in store.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
        if file.is_file
    ]


def _place_of(table: Table) -> tuple[fs.FileSystem, str]:
    if not table.location().startswith("s3://"):
        return fs.LocalFileSystem(), urlsplit(table.location()).path
    store = fs.S3FileSystem(
        access_key=table.io.properties["s3.access-key-id"],
        secret_key=table.io.properties["s3.secret-access-key"],
        endpoint_override=table.io.properties["s3.endpoint"],
        region="us-east-1",
    )
    return store, table.location().removeprefix("s3://")


def decoded(store: Any, path: str) -> bytes:
    content: bytes = store.open_input_stream(path, compression=None).read()
    if path.endswith(".gz.metadata.json"):
        return gzip.decompress(content)
    if path.endswith(".avro"):
        return repr([*fastavro.reader(io.BytesIO(content))]).encode()
    return content


COLUMNS = {"id": LongType(), "city": StringType(), "cents": LongType()}
OLD = Schema(*(NestedField(number, name, COLUMNS[name]) for number, name in enumerate(COLUMNS, 1)))


def test_a_table_of_format_1_that_another_client_has_upgraded(lake: Lake, tmp_path: Path) -> None:
    """Its old manifests have no sequence numbers, and its rows are older than all changes."""
    if lake.name == "nessie":
        pytest.skip("Nessie makes tables of format 2 only")
    config = lake.config()
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "city"))
    catalog = lake.open_plain()
    catalog.create_namespace_if_not_exists("db")
    storage, old = config.ref.storage, {"format-version": "1"}
    place = f"file://{storage.path}/db/{config.table}" if isinstance(storage, LocalStorage) else None
    table = catalog.create_table(config.identifier, OLD, place, spec, properties=old)
    assert table.metadata.format_version == 1
    for rows in (ROWS[:3], ROWS[3:]):
        table.append(pa.Table.from_pylist(rows, WRITTEN))
    table.delete("id = 5")
    assert read(config) == ROWS[:5]
    with table.transaction() as upgrade:
        upgrade.upgrade_table_version(2)
    table.append(pa.Table.from_pylist(ROWS[5:], WRITTEN))
    assert read(config) == ROWS
    copy = Copy(config, tmp_path)
    assert copy.rows() == ROWS
    job = Job(config, lake.strategy("merge_on_read"))
    job.epoch(NEXT)
    assert lake.table(config).metadata.format_version == 2
    assert lake.rows(config) == read(config) == CHANGED
    assert copy.rows() == CHANGED
    if lake.version == 3:
        assert IcebergTable(config.ref).upgrade(3) == 2
        assert lake.rows(config) == read(config) == CHANGED
        job.epoch(upserts(CHANGED[0]))
        assert lake.table(config).metadata.format_version == 3
        assert lake.rows(config) == read(config) == CHANGED
        assert copy.rows() == CHANGED
    IcebergTable(config.ref).compact()
    assert lake.rows(config) == read(config) == CHANGED
    assert copy.rows() == CHANGED
