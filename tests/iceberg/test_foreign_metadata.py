"""Metadata that pyiceberg refuses and other engines take: the table is read, and refused by name where it can't be."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, ListType, LongType, NestedField, StringType, StructType

from volley import (
    CatalogError,
    ConfigError,
    Environment,
    IcebergStorage,
    MaterializedView,
    MemorySource,
    SourceContext,
    VolleyError,
    col,
)
from volley.iceberg import (
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergTable,
    Insert,
    RestCatalog,
    SchemaEvolution,
    SnapshotManager,
    TableRef,
    Upsert,
    changes_between,
    orphan_files,
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


def folder_of(ref: TableRef) -> Path:
    return Path(ref.storage.root.removeprefix("file://"))


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
    place, files = place_of(ref), set(folder_of(ref).rglob("*"))
    before = place.read_text()
    with pytest.raises(ConfigError, match=r"table db\.events can be read, but not changed from here"):
        use(ref)
    assert place_of(ref) == place
    assert place.read_text() == before
    assert set(folder_of(ref).rglob("*.parquet")) <= files


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


ENCRYPTED: dict[str, tuple[Callable[[Metadata], Any], str]] = {
    "table": (
        lambda metadata: metadata.update({"encryption-keys": [{"key-id": "k1", "encrypted-key-metadata": "eA=="}]}),
        r"key 'k1' \(encryption-keys\)",
    ),
    "snapshot": (
        lambda metadata: metadata["snapshots"][-1].update({"key-id": "k1"}),
        r"key 'k1' \(key-id of snapshot \d+\)",
    ),
}


@pytest.mark.parametrize(("how", "place"), ENCRYPTED.values(), ids=ENCRYPTED)
def test_keys_that_pyiceberg_drops_are_found_in_every_catalog(
    how: Callable[[Metadata], Any], place: str, ref: TableRef, rest: TableRef
) -> None:
    change(ref, how)
    for table in (ref, rest):
        with pytest.raises(CatalogError, match=rf"table db\.events is encrypted with the {place}, and can't be read"):
            IcebergTable(table).to_arrow()


def test_a_table_without_a_key_in_use_is_read(ref: TableRef, rest: TableRef) -> None:
    change(ref, lambda metadata: metadata.update({"encryption-keys": [], "properties": {"note": '"key-id"'}}))
    for table in (ref, rest):
        assert sorted_rows(IcebergTable(table).to_arrow()) == _ROWS
    SnapshotManager(ref).create_tag("t")


@pytest.fixture
def partitioned(tmp_path: Path) -> TableRef:
    """Return a table with a file for each row, partitioned by the id and by the name."""
    made = TableRef("db", "events", IcebergStorage.Local(str(tmp_path / "lake")))
    with made.load_catalog() as catalog:
        catalog.create_namespace("db")
        fields = (PartitionField(number, 999 + number, IdentityTransform(), f"p{number}") for number in (1, 3))
        table = catalog.create_table("db.events", _SCHEMA, partition_spec=PartitionSpec(*fields))
        for each in _ROWS:
            table.append(pa.Table.from_pylist([each], table.schema().as_arrow()))
    return made


def with_transform(transform: str, sources: list[int], both: bool, metadata: Metadata) -> None:
    """Give the first partition field another transform, of several columns if there are several."""
    field = metadata["partition-specs"][0]["fields"][0]
    field["transform"] = transform
    if len(sources) > 1:
        field["source-ids"] = sources
        if not both:
            del field["source-id"]


TRANSFORMS: dict[str, tuple[Callable[[Metadata], None], str]] = {
    "unknown": (partial(with_transform, "zorder", [1], False), "has the transform zorder, which is not known here"),
    "of several": (partial(with_transform, "bucket[4]", [1, 3], False), r"the transform bucket\[4\] of columns 1, 3"),
    "of several, one apart": (
        partial(with_transform, "bucket[4]", [1, 3], True),
        r"the transform bucket\[4\] of columns 1, 3",
    ),
}


def into(ref: TableRef, **mode: Any) -> Any:
    config = IcebergSinkConfig.from_table(ref)
    config = config.with_commit_mode(Upsert("id", **mode)) if mode else config
    state = folder_of(ref).parent / "state"
    rows = Environment(checkpoint_dir=str(state)).from_source(MemorySource([_ROWS[0]]))
    return rows.to_sink(IcebergSink(config)).execute("_".join(["rows", *mode.values()]))


# These changes write no row, but would lose what pyiceberg drops.
REFS: dict[str, Callable[[TableRef], Any]] = {
    "expiry": lambda ref: SnapshotManager(ref).expire_snapshots("0s", 1),
    "rollback": lambda ref: SnapshotManager(ref).rollback_to(SnapshotManager(ref).list_snapshots()[1].id),
    "branch": lambda ref: SnapshotManager(ref).create_branch("b"),
}
WRITES: dict[str, Callable[[TableRef], Any]] = {
    "append": into,
    "upsert": partial(into, strategy="merge_on_read"),
    "copy": partial(into, strategy="copy_on_write"),
    "compaction": lambda ref: IcebergTable(ref).compact(rewrite_all=True),
    "deletes": lambda ref: IcebergTable(ref).rewrite_position_deletes(),
    "manifests": lambda ref: IcebergTable(ref).rewrite_manifests(),
}


def read_all_ways(ref: TableRef) -> None:
    """Check rows read whole, by filters on each column, as changes and by a stream."""
    table = IcebergTable(ref)
    assert sorted_rows(table.to_arrow()) == _ROWS
    for number in range(3):
        assert table.rows.filter(f"id = {number}").to_arrow()["id"].to_pylist() == [number]
        assert table.rows.filter(col("name") == f"n{number}").to_arrow()["id"].to_pylist() == [number]
    assert sorted(change.row["id"] for change in changes_between(ref, None) if isinstance(change, Insert)) == [0, 1, 2]
    assert stream(ref).schema.names == ["id", "v", "name", "inner"]


@pytest.mark.parametrize(("how", "message"), TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_transform_that_is_not_known_is_read_and_not_written(
    how: Callable[[Metadata], None], message: str, partitioned: TableRef
) -> None:
    change(partitioned, how)
    read_all_ways(partitioned)
    before, files = place_of(partitioned), set(folder_of(partitioned).rglob("*.parquet"))
    for use in WRITES.values():
        with pytest.raises(VolleyError, match=message):
            use(partitioned)
    assert place_of(partitioned) == before
    assert set(folder_of(partitioned).rglob("*.parquet")) == files
    # The other field of the partition skips files: those of other partitions are not looked for.
    for place in files:
        if "p3=n1" not in str(place):
            place.unlink()
    assert IcebergTable(partitioned).rows.filter("name = 'n1'").to_arrow()["id"].to_pylist() == [1]


def test_rest_catalogs_tell_transforms_of_several_columns_too(ref: TableRef, rest: TableRef) -> None:
    order = {"direction": "asc", "null-order": "nulls-first", "transform": "zorder", "source-id": 1}
    change(ref, lambda data: data["sort-orders"].append({"order-id": 1, "fields": [{**order, "source-ids": [1, 3]}]}))
    assert sorted_rows(IcebergTable(rest).to_arrow()) == _ROWS
    with pytest.raises(ConfigError, match="a sort field has the transform zorder of columns 1, 3"):
        SnapshotManager(rest).create_tag("t")


def test_rest_catalogs_get_no_change_of_a_table_by_several_columns(partitioned: TableRef) -> None:
    change(partitioned, TRANSFORMS["of several, one apart"][0])
    files = set(folder_of(partitioned).rglob("events/*/*"))
    with served(partitioned) as table:
        read_all_ways(table)
        for use in (*WRITES.values(), *CHANGES.values()):
            with pytest.raises(VolleyError, match=r"the transform bucket\[4\] of columns 1, 3"):
                use(table)
        assert orphan_files(table, 0) == []
    assert set(folder_of(partitioned).rglob("events/*/*")) == files


def test_changes_keep_the_name_of_an_unknown_transform(partitioned: TableRef) -> None:
    """The table can be changed where no rows are written; pyiceberg would write "unknown"."""
    change(partitioned, partial(with_transform, "zorder", [1], False))
    SnapshotManager(partitioned).create_tag("t")
    SchemaEvolution(partitioned.load().schema()).add("a", "int").apply(partitioned)
    fields = json.loads(place_of(partitioned).read_text())["partition-specs"][0]["fields"]
    assert [field["transform"] for field in fields] == ["zorder", "identity"]


@pytest.mark.parametrize("how", REFS)
def test_snapshots_are_maintained_beside_an_unknown_transform(how: str, partitioned: TableRef) -> None:
    change(partitioned, TRANSFORMS["unknown"][0])
    REFS[how](partitioned)
    assert len(SnapshotManager(partitioned).list_snapshots()) == (1 if how == "expiry" else 3)
    fields = json.loads(place_of(partitioned).read_text())["partition-specs"][0]["fields"]
    assert [field["transform"] for field in fields] == ["zorder", "identity"]


@pytest.mark.parametrize("how", REFS)
def test_snapshots_stay_beside_a_transform_of_several_columns(how: str, partitioned: TableRef) -> None:
    """The metadata are written whole, without what pyiceberg drops: no change is safe."""
    change(partitioned, TRANSFORMS["of several"][0])
    before = place_of(partitioned)
    with pytest.raises(VolleyError, match=r"can be read, but not changed from here: .* bucket\[4\] of columns 1, 3"):
        REFS[how](partitioned)
    assert place_of(partitioned) == before


@pytest.mark.usefixtures("spark")
def test_rows_are_written_by_a_newer_spec(partitioned: TableRef) -> None:
    """Files of the spec that is not known stay as they are, their manifests too; none of them is changed."""

    def by_the_name(metadata: Metadata) -> None:
        with_transform("zorder", [1], False, metadata)
        field = {"name": "by_name", "transform": "identity", "source-id": 3, "field-id": 1002}
        metadata["partition-specs"].append({"spec-id": 1, "fields": [field]})
        metadata["properties"] |= {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
        metadata |= {"default-spec-id": 1, "last-partition-id": 1002}

    change(partitioned, by_the_name)
    into(partitioned)
    rows = [_ROWS[0], *_ROWS]
    assert sorted_rows(IcebergTable(partitioned).to_arrow()) == rows
    files = set(folder_of(partitioned).rglob("*.parquet"))
    for strategy in ("merge_on_read", "copy_on_write"):
        with pytest.raises(VolleyError, match=r"partition field 'p1' has the transform zorder, which is not known"):
            into(partitioned, strategy=strategy)
    assert set(folder_of(partitioned).rglob("*.parquet")) == files
    assert sorted_rows(IcebergTable(partitioned).to_arrow()) == rows


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
    with served(ref) as table:
        yield table


@contextmanager
def served(ref: TableRef) -> Iterator[TableRef]:
    """Give a table by a REST catalog."""
    handler = type("Handler", (_Rest,), {"place": place_of(ref)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield TableRef("db", "events", ref.storage, RestCatalog(f"http://127.0.0.1:{server.server_port}"))
    finally:
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
