"""Metadata that pyiceberg refuses and other engines take: the table is read, and refused by name where it can't be."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, ListType, LongType, NestedField, StringType, StructType

from volley import CatalogError, ConfigError, Environment, IcebergStorage, MaterializedView, SourceContext, col
from volley.iceberg import (
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergTable,
    Insert,
    RestCatalog,
    SchemaEvolution,
    SnapshotManager,
    TableRef,
    changes_between,
)

_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "v", BinaryType(), required=False),
    NestedField(3, "name", StringType(), required=False),
    NestedField(4, "inner", StructType(NestedField(5, "tags", ListType(6, BinaryType(), False))), required=False),
)
_ROWS = [{"id": i, "v": b"x", "name": f"n{i}", "inner": {"tags": [b"y"]}} for i in range(3)]

Metadata = dict[str, Any]


@pytest.fixture
def ref(tmp_path: Path) -> TableRef:
    made = TableRef("db", "events", IcebergStorage.Local(str(tmp_path / "lake")))
    with made.load_catalog() as catalog:
        catalog.create_namespace("db")
        table = catalog.create_table("db.events", _SCHEMA)
        for row in _ROWS:
            table.append(pa.Table.from_pylist([row], table.schema().as_arrow()))
    return made


def place_of(ref: TableRef) -> Path:
    return Path(ref.load().metadata_location.removeprefix("file://"))


def change(ref: TableRef, how: Callable[[Metadata], Any]) -> None:
    """Change the table's metadata file, so that it is as another engine writes it."""
    place = place_of(ref)
    metadata = json.loads(place.read_text())
    how(metadata)
    place.write_text(json.dumps(metadata))


def with_type(name: str, metadata: Metadata) -> None:
    metadata["schemas"][0]["fields"][1]["type"] = name


def with_nested_vector(metadata: Metadata) -> None:
    metadata["schemas"][0]["fields"][3]["type"]["fields"][0]["type"]["element"] = "vector(3)"


def with_another_identifier(metadata: Metadata) -> None:
    metadata["table-uuid"] = "events of another engine"


def with_incomplete_statistics(metadata: Metadata) -> None:
    metadata["statistics"] = [{"statistics-path": "file:///none"}]


def without_partition_ids(metadata: Metadata) -> None:
    metadata["format-version"] = 1
    metadata["schema"] = metadata["schemas"][0]
    metadata["partition-specs"] = [
        {"spec-id": 0, "fields": []},
        {"spec-id": 1, "fields": [{"name": "p", "transform": "identity", "source-id": 1}]},
    ]
    metadata["partition-spec"] = []


READ_WHOLE = {
    "geometry": partial(with_type, "geometry"),
    "geometry with a reference": partial(with_type, "geometry(EPSG:4326)"),
    "geography with an algorithm": partial(with_type, "geography(OGC:CRS84, karney)"),
    "identifier": with_another_identifier,
    "statistics": with_incomplete_statistics,
    "partition ids": without_partition_ids,
}


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.sort_by("id").to_pylist()
    return rows


@pytest.mark.parametrize("how", READ_WHOLE.values(), ids=READ_WHOLE)
def test_all_rows_are_read(how: Callable[[Metadata], None], ref: TableRef) -> None:
    change(ref, how)
    assert sorted_rows(IcebergTable(ref).to_arrow()) == _ROWS


def test_packed_metadata_are_read_by_their_content(ref: TableRef) -> None:
    place = place_of(ref)
    place.write_bytes(gzip.compress(place.read_bytes()))
    assert sorted_rows(IcebergTable(ref).to_arrow()) == _ROWS


def test_a_table_without_an_identifier_is_the_same_whenever_it_is_loaded(ref: TableRef, tmp_path: Path) -> None:
    """Format version 1 allows that; a stream must not take it for another table."""

    def without_identifier(metadata: Metadata) -> None:
        without_partition_ids(metadata)
        del metadata["table-uuid"]
        metadata["partition-specs"] = [{"spec-id": 0, "fields": []}]

    change(ref, without_identifier)
    assert ref.load().metadata.table_uuid == ref.load().metadata.table_uuid
    read: list[int] = []
    offset: Any = None
    for number in (4, 5):
        reader = IcebergSource(IcebergSourceConfig(ref)).open(SourceContext(str(tmp_path / "state")))
        offset = offset or reader.initial_offset()
        end = reader.latest_offset(offset, None, None)
        batches = [batch for split in reader.splits(offset, end) for batch in reader.read(split)]
        read += [key for batch in batches for key in batch["id"].to_pylist()]
        offset = end
        if number == 4:
            ref.load().append(pa.Table.from_pylist([{"id": 4}], ref.load().schema().as_arrow()))
    assert sorted(read) == [0, 1, 2, 4]


OTHERS = ["id", "name"]
UNREADABLE: dict[str, tuple[Callable[[Metadata], None], str]] = {
    "column": (partial(with_type, "vector(3)"), r"column 'v' of table db.events has the type vector\(3\)"),
    "nested": (with_nested_vector, r"column 'inner' of table db.events has the type vector\(3\)"),
}


@pytest.mark.parametrize(("how", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_column_that_cannot_be_read_is_named_and_the_others_are_read(
    how: Callable[[Metadata], None], message: str, ref: TableRef
) -> None:
    change(ref, how)
    table = IcebergTable(ref)
    with pytest.raises(ConfigError, match=message) as caught:
        table.to_arrow()
    assert "select" in (caught.value.hint or "")
    rows = table.rows.select(*OTHERS).to_arrow()
    assert sorted_rows(rows) == [{name: row[name] for name in OTHERS} for row in _ROWS]
    assert table.rows.filter(col("id") > 1).select("name").to_arrow()["name"].to_pylist() == ["n2"]
    assert table.rows.filter("id > 1").select("name").to_arrow()["name"].to_pylist() == ["n2"]
    assert len(table.snapshots()) == 3


def stream(ref: TableRef, *columns: str) -> Any:
    config = IcebergSourceConfig(ref)
    return Environment().from_source(IcebergSource(config.with_columns(columns) if columns else config))


USES: dict[str, Callable[[TableRef], Any]] = {
    "rows": lambda ref: IcebergTable(ref).rows.to_arrow(),
    "polars": lambda ref: IcebergTable(ref).to_polars(),
    "tag": lambda ref: IcebergTable(ref).at(IcebergTable(ref).snapshots()[0].id).to_arrow(),
    "selected": lambda ref: IcebergTable(ref).rows.select("v").to_arrow(),
    "filter": lambda ref: IcebergTable(ref).rows.filter(col("v").is_null()).select("id").to_arrow(),
    "text filter": lambda ref: IcebergTable(ref).rows.filter("v is null").select("id").to_arrow(),
    "stream": lambda ref: stream(ref).schema,
    "view": lambda ref: MaterializedView("all", stream(ref), IcebergSinkConfig.from_table(ref.beside("all"))).refresh(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_every_use_of_the_column_is_refused_by_name(use: Callable[[TableRef], Any], ref: TableRef) -> None:
    change(ref, partial(with_type, "vector(3)"))
    with pytest.raises(ConfigError, match=r"column 'v' of .* has the type vector"):
        use(ref)


def test_changes_of_the_other_columns(ref: TableRef, caplog: pytest.LogCaptureFixture) -> None:
    change(ref, partial(with_type, "vector(3)"))
    changes = changes_between(ref, None)
    assert "v" not in changes.schema.names
    assert sorted_rows(changes.to_arrow().select(OTHERS)) == [{name: row[name] for name in OTHERS} for row in _ROWS]
    assert sorted(change.row["name"] for change in changes if isinstance(change, Insert)) == ["n0", "n1", "n2"]
    assert caplog.messages == ["changes of table db.events lack column 'v': its type can't be read"]
    with pytest.raises(ConfigError, match="no key column 'v'"):
        changes_between(ref, None, keys="v")


def test_a_stream_and_a_view_of_the_other_columns(ref: TableRef) -> None:
    change(ref, partial(with_type, "vector(3)"))
    assert stream(ref, *OTHERS).schema.names == OTHERS
    into = IcebergSinkConfig.from_table(ref.beside("names"))
    MaterializedView("names", stream(ref, *OTHERS), into).refresh()
    assert sorted(IcebergTable(into).to_arrow()["name"].to_pylist()) == ["n0", "n1", "n2"]


CHANGES: dict[str, Callable[[TableRef], Any]] = {
    "tag": lambda ref: SnapshotManager(ref).create_tag("t"),
    "expiry": lambda ref: SnapshotManager(ref).expire_snapshots("0s"),
    "columns": lambda ref: SchemaEvolution(ref.load().schema()).add("a", "int").apply(ref),
}


@pytest.mark.parametrize("use", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("how", [partial(with_type, "vector(3)"), with_another_identifier], ids=["type", "identifier"])
def test_nothing_that_pyiceberg_does_not_know_is_lost_by_a_change(
    how: Callable[[Metadata], None], use: Callable[[TableRef], Any], ref: TableRef
) -> None:
    change(ref, how)
    place, files = place_of(ref), set(Path(ref.storage.root).rglob("*"))
    before = place.read_text()
    with pytest.raises(ConfigError, match=r"table db\.events can be read, but not changed from here"):
        use(ref)
    assert place_of(ref) == place
    assert place.read_text() == before
    assert set(Path(ref.storage.root).rglob("*.parquet")) <= files


def test_what_cannot_be_mended_is_refused_in_words(ref: TableRef) -> None:
    place = place_of(ref)

    def without_columns(metadata: Metadata) -> None:
        with_type("vector(3)", metadata)
        del metadata["current-schema-id"], metadata["last-column-id"]

    change(ref, without_columns)
    with pytest.raises(CatalogError, match="is not in the form of Iceberg's metadata") as caught:
        IcebergTable(ref).to_arrow()
    assert "last-column-id" in str(caught.value)
    assert "check the address" not in str(caught.value)
    assert place.exists()


def test_an_encrypted_table_is_refused_by_its_key(ref: TableRef) -> None:
    change(ref, lambda metadata: metadata["properties"].update({"encryption.key-id": "payroll"}))
    for use in (lambda: IcebergTable(ref).to_arrow(), lambda: SnapshotManager(ref).create_tag("t")):
        with pytest.raises(CatalogError, match=r"table db\.events is encrypted with the key 'payroll'"):
            use()


class _Rest(BaseHTTPRequestHandler):
    """A REST catalog that has one table, whose metadata it answers as they are in the file."""

    place: Path

    def do_GET(self) -> None:
        if self.path.startswith("/v1/config"):
            answer: Metadata = {"defaults": {}, "overrides": {}}
        else:
            metadata = json.loads(self.place.read_text())
            answer = {"metadata-location": f"file://{self.place}", "metadata": metadata, "config": {}}
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        self.send_error(500)  # a commit must not get here

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def rest(ref: TableRef) -> Iterator[TableRef]:
    handler = type("Handler", (_Rest,), {"place": place_of(ref)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield TableRef("db", "events", ref.storage, RestCatalog(f"http://127.0.0.1:{server.server_port}"))
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_rest_catalogs_tables_are_read_and_not_changed(ref: TableRef, rest: TableRef) -> None:
    change(ref, partial(with_type, "vector(3)"))
    assert sorted(IcebergTable(rest).rows.select("id").to_arrow()["id"].to_pylist()) == [0, 1, 2]
    with pytest.raises(ConfigError, match=r"column 'v' of table db\.events has the type vector"):
        IcebergTable(rest).to_arrow()
    with pytest.raises(ConfigError, match="can be read, but not changed from here: column 'v' has the type vector"):
        SnapshotManager(rest).create_tag("t")
