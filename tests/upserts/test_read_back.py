"""What reads a data file back changes no value in it, and has each where the table's schema has it now."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

from tests.upserts.lake import QUERY, Lake
from tests.upserts.nested import tables, told
from tests.upserts.values import VALUES, make_table
from volley import Epoch, StorageError
from volley.iceberg import Append, Upsert
from volley.iceberg.read.entries import Content, EntryStatus, FileEntry, PlannedFile
from volley.iceberg.read.planning import plan
from volley.iceberg.read.rows import RowReader, file_task

# Changes of copies


@given(rows=tables(), strategy=st.sampled_from(["copy_on_write", "auto"]))
def test_an_upsert_leaves_the_rows_it_does_not_replace_as_they_are(
    rows: pa.Table, strategy: Literal["copy_on_write", "auto"]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder), Upsert(["id"], strategy=strategy), rows.schema)
        for number, some in enumerate([rows, rows.slice(0, 2), rows.slice(2, 2)]):
            write(lake, number, some)
        # By pyarrow itself: pyiceberg's scan has empty lists in the place of null ones.
        files = [task.file.file_path.removeprefix("file://") for task in lake.table().scan().plan_files()]
        found = pa.concat_tables([pq.read_table(path) for path in files])
        lake.close()
    assert told(found.select(rows.schema.names)) == told(rows)


def write(lake: Lake, number: int, rows: pa.Table) -> None:
    """One epoch of Arrow rows."""
    driver = lake.driver()
    driver.last_epoch(QUERY)
    task = driver.writer(Epoch(QUERY, number)).open(0)
    for batch in rows.to_batches():
        task.write(batch)
    driver.commit(Epoch(QUERY, number), [task.close()])


@pytest.mark.parametrize("strategy", ["copy_on_write", "merge_on_read"])
def test_uuids_are_keys_too(strategy: Literal["copy_on_write", "merge_on_read"], tmp_path: Path) -> None:
    schema = pa.schema({"uuid": pa.binary(16), "n": pa.int64()})
    lake = Lake(tmp_path, Upsert(["uuid"], strategy=strategy), schema)
    make_table(lake)
    rows = [{"uuid": uuid4().bytes, "n": number} for number in range(10)]
    lake.epoch(rows[:5], rows[5:])
    lake.epoch([rows[3] | {"n": 100}], [rows[3] | {"n": 103}])
    assert sorted(row["n"] for row in lake.duckdb_rows()) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 103]
    lake.close()


# Reading by field id


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with InMemoryCatalog("test", warehouse=f"file://{tmp_path}/warehouse") as made:
        made.create_namespace("db")
        yield made


def a_list(field_id: int, element: IcebergType) -> ListType:
    return ListType(field_id, element, element_required=False)


def a_map(field_id: int, value: IcebergType) -> MapType:
    return MapType(field_id, StringType(), field_id + 1, value, value_required=False)


OLD = Schema(
    NestedField(1, "id", IntegerType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "price", DecimalType(5, 2)),
    NestedField(4, "real", DoubleType()),
    NestedField(5, "point", StructType(NestedField(6, "x", IntegerType()), NestedField(7, "y", StringType()))),
    NestedField(
        8, "all", a_list(9, StructType(NestedField(10, "a", IntegerType()), NestedField(11, "b", IntegerType())))
    ),
    NestedField(12, "by", a_map(13, StructType(NestedField(15, "v", IntegerType())))),
)
# Moved, renamed, widened, dropped and added at every level.
NEW = Schema(
    NestedField(12, "per", a_map(13, StructType(NestedField(30, "w", StringType()), NestedField(15, "u", LongType())))),
    NestedField(5, "place", StructType(NestedField(31, "z", DateType()), NestedField(6, "x", LongType()))),
    NestedField(
        8,
        "all",
        a_list(9, StructType(NestedField(11, "bb", LongType()), NestedField(32, "c", a_list(33, IntegerType())))),
    ),
    NestedField(1, "id", LongType()),
    NestedField(3, "price", DecimalType(20, 2)),
    NestedField(34, "extra", StructType(NestedField(35, "deep", UUIDType()))),
    NestedField(2, "label", StringType()),
)
BEFORE = [
    {
        "id": 1,
        "name": "a",
        "price": Decimal("1.50"),
        "real": 0.5,
        "point": {"x": 1, "y": "gone"},
        "all": [{"a": 1, "b": 2}, None, {"a": None, "b": None}],
        "by": [("k", {"v": 5}), ("n", None)],
    },
    {"id": 2, "name": None, "price": None, "real": None, "point": None, "all": None, "by": None},
    {"id": 3, "name": "", "price": None, "real": None, "point": {"x": None, "y": None}, "all": [], "by": []},
]
AFTER = [
    {
        "per": [("k", {"w": None, "u": 5}), ("n", None)],
        "place": {"z": None, "x": 1},
        "all": [{"bb": 2, "c": None}, None, {"bb": None, "c": None}],
        "id": 1,
        "price": Decimal("1.50"),
        "extra": None,
        "label": "a",
    },
    {"per": None, "place": None, "all": None, "id": 2, "price": None, "extra": None, "label": None},
    {"per": [], "place": {"z": None, "x": None}, "all": [], "id": 3, "price": None, "extra": None, "label": ""},
]


def table_of(catalog: Catalog, schema: Schema, spec: PartitionSpec | None = None, mapping: str = "") -> Table:
    """A table with the very field ids of the schema."""
    named = {"schema.name-mapping.default": mapping} if mapping else {}
    table = catalog.create_table("db.t", schema, partition_spec=spec or PartitionSpec(), properties=named)
    return Table(table.name(), table.metadata.model_copy(update={"schemas": [schema]}), "", PyArrowFileIO(), catalog)


def file_of(rows: pa.Table, path: Path, *partition: Any, **options: Any) -> FileEntry:
    pq.write_table(rows, path, **options)
    size = path.stat().st_size
    return FileEntry(EntryStatus.ADDED, 1, 1, 1, Content.DATA, str(path), "PARQUET", 0, partition, rows.num_rows, size)


def batches_of(table: Table, file: FileEntry, schema: Schema) -> Iterator[pa.RecordBatch]:
    return RowReader.of(table.metadata, schema).read(table.io, file_task(PlannedFile(file), table.metadata))


def read(table: Table, file: FileEntry, schema: Schema) -> list[dict[str, Any]]:
    batches = list(batches_of(table, file, schema))
    found = pa.Table.from_batches(batches)
    found.validate(full=True)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


@pytest.mark.parametrize("options", [{}, {"store_schema": False}, {"row_group_size": 1}])
def test_columns_are_found_by_their_ids_at_every_level(
    options: dict[str, Any], catalog: Catalog, tmp_path: Path
) -> None:
    rows = pa.Table.from_pylist(BEFORE, schema=OLD.as_arrow())
    table = table_of(catalog, NEW)
    assert read(table, file_of(rows, tmp_path / "old.parquet", **options), NEW) == AFTER


def test_files_without_ids_are_read_by_the_tables_mapping_of_names(catalog: Catalog, tmp_path: Path) -> None:
    plain = pa.schema([pa.field(field.name, bare(field.type)) for field in OLD.as_arrow()])
    file = file_of(pa.Table.from_pylist(BEFORE, schema=plain), tmp_path / "plain.parquet")
    with pytest.raises(StorageError, match="no field ids"):
        read(table_of(catalog, NEW), file, NEW)
    catalog.drop_table("db.t")
    table = table_of(catalog, NEW, mapping=OLD.name_mapping.model_dump_json())
    assert read(table, file, NEW) == AFTER


def bare(kind: pa.DataType) -> pa.DataType:
    """The type without ids."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, bare(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(bare(kind.key_type), bare(kind.item_type))
    return pa.list_(bare(kind.value_type)) if pa.types.is_large_list(kind) or pa.types.is_list(kind) else kind


def test_an_upsert_reads_files_without_ids_too(tmp_path: Path) -> None:
    rows = pa.table(
        {"id": [1, 2, 3], "all": pa.array([None, [], [{"a": None}]], pa.list_(pa.struct({"a": pa.int64()})))}
    )
    lake = Lake(tmp_path, Upsert(["id"], strategy="copy_on_write"), rows.schema)
    lake.driver()
    pq.write_table(rows, tmp_path / "added.parquet")
    lake.table().add_files([f"file://{tmp_path}/added.parquet"])
    write(lake, 0, pa.Table.from_pylist([{"id": 3, "all": None}], schema=rows.schema))
    assert sorted(lake.duckdb_rows(), key=lambda row: row["id"]) == [
        *({"id": 1, "all": None}, {"id": 2, "all": []}, {"id": 3, "all": None})
    ]
    lake.close()


@pytest.mark.parametrize("name", list(VALUES))
def test_a_column_that_only_the_partition_tells(name: str, catalog: Catalog, tmp_path: Path) -> None:
    kind, values = VALUES[name]
    lake = Lake(tmp_path, Append(), pa.schema({"id": pa.int64(), name: kind}))
    make_table(lake, name)
    lake.epoch([{"id": 0, name: values[1]}])
    table = lake.table()
    (planned,) = plan(table.io, table.metadata, table.metadata.snapshots[-1]).files
    path = Path(planned.file.path.removeprefix("file://"))
    whole = list(batches_of(table, planned.file, table.schema()))
    pq.write_table(pq.read_table(path).select(["id"]), path)
    assert list(batches_of(table, planned.file, table.schema())) == whole
    lake.close()


def test_only_identity_partitions_and_defaults_stand_for_values(catalog: Catalog, tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", IntegerType()),
        NestedField(2, "kind", StringType(), initial_default="new"),
        NestedField(3, "day", DateType(), initial_default="2024-02-29"),
        NestedField(4, "key", UUIDType(), initial_default=str(UUID(int=5))),
        NestedField(5, "bucketed", IntegerType()),
    )
    fields = [PartitionField(2, 1000, IdentityTransform(), "kind"), PartitionField(5, 1001, BucketTransform(4), "b")]
    table = table_of(catalog, schema, PartitionSpec(*fields))
    rows = pa.table({"id": pa.array([1, 2], pa.int32())}, schema=schema.select("id").as_arrow())
    told = [read(table, file_of(rows, tmp_path / "f.parquet", value, 3), schema) for value in ("part", None)]
    for found, kind in zip(told, ("part", "new"), strict=True):
        assert [row["kind"] for row in found] == [kind] * 2
        assert [str(row["day"]) for row in found] == ["2024-02-29"] * 2
        assert [row["key"] for row in found] == [UUID(int=5)] * 2
        assert [row["bucketed"] for row in found] == [None] * 2


FOREIGN = [
    (pa.array(["a", None, "b"]).dictionary_encode(), StringType(), ["a", None, "b"]),
    (pa.array(["a", None], pa.large_string()), StringType(), ["a", None]),
    (pa.array([b"a", None]), StringType(), ["a", None]),
    (pa.array([1, None], pa.int8()), IntegerType(), [1, None]),
    (pa.array([1, None], pa.uint16()), LongType(), [1, None]),
    (pa.array([1.5, None], pa.float16()), DoubleType(), [1.5, None]),
    (pa.array([1500, None], pa.timestamp("ns")), TimestampType(), [1, None]),
    (pa.array([1, None], pa.timestamp("ms")), TimestampType(), [1000, None]),
    (pa.array([None, [1], [None]], pa.large_list(pa.int16())), a_list(3, IntegerType()), [None, [1], [None]]),
    (pa.array([None, [1, 2]], pa.list_(pa.int32(), 2)), a_list(3, IntegerType()), [None, [1, 2]]),
]


@pytest.mark.parametrize(("column", "kind", "values"), FOREIGN, ids=[str(column.type) for column, _, _ in FOREIGN])
def test_types_of_other_writers_are_those_of_the_table(
    column: pa.Array, kind: Any, values: list[Any], catalog: Catalog, tmp_path: Path
) -> None:
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "c", kind))
    fields = [pa.field("c", column.type, metadata={"PARQUET:field_id": "2"})]
    rows = pa.Table.from_arrays([column], schema=pa.schema(fields))
    table = table_of(catalog, schema)
    (batch,) = batches_of(table, file_of(rows, tmp_path / "f.parquet"), schema)
    found = batch.column("c")
    assert (found.cast(pa.int64()) if pa.types.is_timestamp(found.type) else found).to_pylist() == values
    assert batch.column("id").null_count == len(values)
