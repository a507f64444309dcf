"""Rows of data files without those that delete files delete; the delete files are made as other engines write them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import parser
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, IcebergType, IntegerType, LongType, NestedField, StringType, StructType
from pyroaring import BitMap64

from tests.iceberg.conftest import Make
from volley import SourceError, StorageError
from volley.iceberg.read.data_files import OpenDataFile
from volley.iceberg.read.delete_files import Mask, columns_of
from volley.iceberg.read.entries import Content, EntryStatus, FileEntry, PlannedFile
from volley.iceberg.read.rows import FileTask, RowReader, file_task
from volley.iceberg.schema.types import arrow_schema

IO = PyArrowFileIO()
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "real", DoubleType()),
    NestedField(4, "place", StructType(NestedField(5, "x", IntegerType()))),
)
ROWS: list[dict[str, Any]] = [
    {"id": 0, "name": "a", "real": 0.0, "place": {"x": 1}},
    {"id": 1, "name": None, "real": -0.0, "place": {"x": None}},
    {"id": 2, "name": "c", "real": float("nan"), "place": None},
    {"id": 3, "name": "", "real": None, "place": {"x": 4}},
    {"id": None, "name": "e", "real": 1.5, "place": {"x": 5}},
]


def entry(path: Path, content: Content, rows: int, **more: Any) -> FileEntry:
    size = path.stat().st_size
    return FileEntry(
        EntryStatus.ADDED, 1, 1, 1, content, str(path), more.pop("format", "PARQUET"), 0, (), rows, size, **more
    )


def data_file(folder: Path, schema: Schema = SCHEMA, rows: Sequence[dict[str, Any]] = ROWS) -> FileEntry:
    path = folder / "data.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows), schema=arrow_schema(schema)), path, row_group_size=2)
    return entry(path, Content.DATA, len(rows))


def position_deletes(folder: Path, positions: Sequence[tuple[str, int]], **more: Any) -> FileEntry:
    path = folder / f"positions{len(list(folder.iterdir()))}.parquet"
    pq.write_table(pa.table({"file_path": [file for file, _ in positions], "pos": [row for _, row in positions]}), path)
    return entry(path, Content.POSITION_DELETES, len(positions), **more)


def equality_deletes(folder: Path, ids: Sequence[int], schema: Schema, rows: Sequence[dict[str, Any]]) -> FileEntry:
    path = folder / f"equal{len(list(folder.iterdir()))}.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows), schema=arrow_schema(schema)), path)
    return entry(path, Content.EQUALITY_DELETES, len(rows), equality_ids=tuple(ids))


def ids(task: FileTask, schema: Schema = SCHEMA) -> list[Any]:
    return [row["id"] for batch in RowReader(schema).read(IO, task) for row in batch.to_pylist()]


def test_position_deletes_of_other_files_do_not_matter(tmp_path: Path) -> None:
    file = data_file(tmp_path)
    several = position_deletes(tmp_path, [(file.path, 0), ("/other.parquet", 1), (file.path, 4)])
    assert ids(FileTask(file, (several,))) == [1, 2, 3]
    # The same position deleted twice.
    again = position_deletes(tmp_path, [(file.path, 4), (file.path, 2)])
    assert ids(FileTask(file, (several, again))) == [1, 3]


def test_of_a_delete_file_with_one_data_file_only_the_positions_are_read(tmp_path: Path) -> None:
    file = data_file(tmp_path)
    # The path inside is wrong.
    deletes = position_deletes(tmp_path, [("unread", 1)], referenced_file=file.path)
    assert ids(FileTask(file, (deletes,))) == [0, 2, 3, None]


def test_dictionaries_have_no_values_of_deleted_rows(tmp_path: Path) -> None:
    file = data_file(tmp_path)
    deletes = position_deletes(tmp_path, [(file.path, 0)])
    reader = RowReader(SCHEMA.select("name"), dictionaries=True)
    types = [
        {str(batch.schema.field("name").type) for batch in reader.read(IO, FileTask(file, part))}
        for part in [(), (deletes,)]
    ]
    assert types == [{"dictionary<values=string, indices=int32, ordered=0>"}, {"string"}]


def test_parts_have_each_remaining_row_once(tmp_path: Path) -> None:
    file = data_file(tmp_path)
    deletes = position_deletes(tmp_path, [(file.path, 1), (file.path, 2)])
    parts = [ids(FileTask(file, (deletes,), part=(number, 3))) for number in range(3)]
    assert parts == [[0], [3], [None]]
    by_name = equality_deletes(tmp_path, [2], SCHEMA.select("name"), [{"name": "a"}, {"name": "e"}])
    keys = {by_name.path: SCHEMA.select("name")}
    assert [ids(FileTask(file, (by_name,), keys=keys, part=(number, 3))) for number in range(3)] == [[1], [2, 3], []]


def test_rows_that_are_newly_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = data_file(tmp_path)
    before = position_deletes(tmp_path, [(file.path, 1)])
    after = position_deletes(tmp_path, [(file.path, 0), (file.path, 1), (file.path, 4)])
    read: list[list[int]] = []
    batches = OpenDataFile.batches

    def recorded(file: OpenDataFile, *arguments: Any) -> Any:
        read.append(arguments[3])
        return batches(file, *arguments)

    monkeypatch.setattr(OpenDataFile, "batches", recorded)
    rows = RowReader(SCHEMA).read_deleted(IO, FileTask(file, (before,)), FileTask(file, (after,)))
    assert [row["id"] for batch in rows for row in batch.to_pylist()] == [0, None]
    # Two rows are in each row group: the second has none of them.
    assert read == [[0, 2]]
    assert not list(RowReader(SCHEMA).read_deleted(IO, FileTask(file, (after,)), FileTask(file, (before,))))


def test_of_newly_deleted_rows_only_their_pages_are_read(tmp_path: Path) -> None:
    path, schema = tmp_path / "paged.parquet", arrow_schema(SCHEMA.select("id"))
    rows = pa.table({"id": pa.array(range(20_000), pa.int64())}, schema=schema)
    pq.write_table(rows, path, write_page_index=True, max_rows_per_page=1_000)
    file = entry(path, Content.DATA, 20_000)
    deletes = position_deletes(tmp_path, [(file.path, row) for row in (17, 2_999, 3_000, 19_999)])
    counted: list[int] = []
    reader = RowReader(SCHEMA.select("id"), count=counted.append)
    deleted = reader.read_deleted(IO, FileTask(file), FileTask(file, (deletes,)))
    assert [row["id"] for batch in deleted for row in batch.to_pylist()] == [17, 2_999, 3_000, 19_999]
    assert sum(counted) == 4_000


def test_located_rows_have_their_positions_in_the_file(tmp_path: Path) -> None:
    file = data_file(tmp_path)
    deletes = position_deletes(tmp_path, [(file.path, 1)])

    def chosen(rows: pa.RecordBatch) -> Mask:
        return np.array([value != 2 for value in rows["id"].to_pylist()])

    located = list(RowReader(SCHEMA.select("id")).read_located(IO, FileTask(file, (deletes,)), chosen))
    found = [
        (row["id"], int(at)) for batch, places in located for row, at in zip(batch.to_pylist(), places, strict=True)
    ]
    assert found == [(0, 0), (3, 3), (None, 4)]


def test_row_groups_without_matching_rows_are_left_out(tmp_path: Path) -> None:
    file = data_file(tmp_path)
    deletes = position_deletes(tmp_path, [(file.path, 3)])

    def read(text: str, *deletes: FileEntry) -> list[Any]:
        reader = RowReader(SCHEMA.select("id"), row_filter=parser.parse(text), filter_schema=SCHEMA)
        return [row["id"] for batch in reader.read(IO, FileTask(file, deletes)) for row in batch.to_pylist()]

    # Row groups of two rows: 0 and 1, 2 and 3, the one without id.
    assert read("id = 1") == [0, 1]
    assert read("id >= 2") == [2, 3]
    assert read("id >= 2", deletes) == [2]
    assert read("id is null") == [None]
    assert read("name = 'c'") == [2, 3]
    assert read("name > 'c'") == [None]
    # NaN is greater than every number, and in no statistics.
    assert read("real > 1.0") == [0, 1, 2, 3, None]
    assert read("real < -1.0") == [2, 3]
    assert read("id > 99") == []


def deletion_vector(folder: Path, positions: Sequence[int], damage: bool = False) -> FileEntry:
    content = b"\xd1\xd3\x39\x64" + BitMap64(positions).serialize()
    checksum = zlib.crc32(content) + damage
    blob = len(content).to_bytes(4, "big") + content + checksum.to_bytes(4, "big")
    path = folder / "vectors.puffin"
    path.write_bytes(b"PFA1" + b"another vector" + blob + b"the footer, which is not read")
    place = {"blob_offset": 18, "blob_size": len(blob)}
    return entry(path, Content.POSITION_DELETES, len(positions), format="PUFFIN", **place)


def test_deletion_vectors(tmp_path: Path) -> None:
    file = data_file(tmp_path)
    assert ids(FileTask(file, (deletion_vector(tmp_path, [0, 3, 4]),))) == [1, 2]
    assert ids(FileTask(file, (deletion_vector(tmp_path, []),))) == [0, 1, 2, 3, None]
    far = deletion_vector(tmp_path, [2, 1 << 40])
    assert ids(FileTask(file, (far,))) == [0, 1, 3, None]
    with pytest.raises(SourceError, match=r"vectors\.puffin at byte 18 is damaged"):
        ids(FileTask(file, (deletion_vector(tmp_path, [1], damage=True),)))


@pytest.mark.parametrize(
    ("columns", "deleted", "left"),
    [
        (["id"], [{"id": 3}, {"id": 7}], [0, 1, 2, None]),
        (["id"], [{"id": None}], [0, 1, 2, 3]),
        (["name"], [{"name": None}, {"name": ""}], [0, 2, None]),
        (["real"], [{"real": float("nan")}], [0, 1, 3, None]),
        (["real"], [{"real": 0.0}], [1, 2, 3, None]),
        (["real"], [{"real": None}], [0, 1, 2, None]),
        (["id", "name"], [{"id": 0, "name": "b"}, {"id": None, "name": "e"}, {"id": 1, "name": None}], [0, 2, 3]),
        (["place"], [{"place": {"x": 4}}, {"place": {"x": None}}], [0, None]),
        (["id"], [], [0, 1, 2, 3, None]),
    ],
)
def test_equality_deletes(columns: list[str], deleted: list[dict[str, Any]], left: list[Any], tmp_path: Path) -> None:
    file, schema = data_file(tmp_path), SCHEMA.select(*columns)
    compared = [5] if columns == ["place"] else [SCHEMA.find_field(column).field_id for column in columns]
    deletes = equality_deletes(tmp_path, compared, schema, deleted)
    # The compared columns need not be among those that are read.
    task = FileTask(file, (deletes,), keys={deletes.path: schema})
    assert ids(task, SCHEMA.select("id")) == left


def test_equality_deletes_hold_after_their_column_was_widened_renamed_and_dropped(tmp_path: Path, make: Make) -> None:
    old = Schema(NestedField(1, "id", LongType()), NestedField(2, "g", IntegerType()))
    file = data_file(tmp_path, old, [{"id": 1, "g": 10}, {"id": 2, "g": 20}, {"id": 3, "g": None}])
    deletes = equality_deletes(tmp_path, [2], old.select("g"), [{"g": 10}, {"g": None}])
    table = make(old)
    with table.update_schema() as update:
        update.update_column("g", LongType()).rename_column("g", "h")
    table.refresh()
    assert [(field.field_id, field.field_type) for field in columns_of(table.metadata, deletes).fields] == [
        (2, LongType())
    ]
    task = file_task(PlannedFile(file, (deletes,)), table.metadata)
    assert ids(task, table.schema()) == [2]
    with table.update_schema() as update:
        update.delete_column("h")
    table.refresh()
    assert ids(file_task(PlannedFile(file, (deletes,)), table.metadata), table.schema()) == [2]


def test_equality_deletes_hold_after_fields_of_their_struct_were_dropped(tmp_path: Path, make: Make) -> None:
    """Over two fields of one struct: one of them is dropped, then the other one, and others get their names."""

    def place(a: int | None, b: int | None) -> dict[str, Any]:
        return {"s": {"a": a, "b": b, "c": {"d": a}}}

    inner = StructType(
        NestedField(4, "a", IntegerType()),
        NestedField(5, "b", IntegerType()),
        NestedField(6, "c", StructType(NestedField(7, "d", IntegerType()))),
    )
    old = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", inner), NestedField(3, "plain", IntegerType()))
    table = make(old)
    fresh = table.schema()
    by_name = {name: fresh.find_field(name).field_id for name in ("s.a", "s.b", "s.c.d", "plain")}
    rows = [{"id": 0, **place(1, 2)}, {"id": 1, **place(1, 3)}, {"id": 2, **place(None, 2)}, {"id": 3, "s": None}]
    file = data_file(tmp_path, fresh, rows)
    deleted = [place(1, 2), place(None, 2)]
    deletes = equality_deletes(tmp_path, list(by_name.values()), fresh.select("s", "plain"), deleted)

    def left() -> list[Any]:
        return ids(file_task(PlannedFile(file, (deletes,)), table.metadata), table.schema().select("id"))

    def change(*dropped: str, **added: IcebergType) -> None:
        with table.update_schema() as update:
            for name in dropped:
                update.delete_column(name)
            for name, data_type in added.items():
                update.add_column(("s", name) if name != "plain" else name, data_type)
        table.refresh()

    assert left() == [1, 3]
    change("s.b")
    assert left() == [1, 3]
    change("s.a", "plain", b=StringType())
    assert left() == [1, 3]
    change("s.c.d", plain=StringType())
    assert left() == [1, 3]
    change("s")
    assert left() == [1, 3]


def test_files_that_cannot_be_read_are_named(tmp_path: Path, make: Make) -> None:
    file = data_file(tmp_path)
    gone = position_deletes(tmp_path, [(file.path, 1)])
    Path(gone.path).unlink()
    with pytest.raises(SourceError, match="is gone"):
        ids(FileTask(file, (gone,)))
    avro = entry(Path(file.path), Content.DATA, 5, format="AVRO")
    with pytest.raises(SourceError, match=r"data\.parquet is not a whole Avro file"):
        ids(FileTask(avro))
    lance = entry(Path(file.path), Content.DATA, 5, format="LANCE")
    for planned in (PlannedFile(lance), PlannedFile(file, (lance,))):
        with pytest.raises(SourceError, match="is LANCE, only Parquet, ORC and Avro can be read"):
            file_task(planned, make(SCHEMA).metadata)
    orc = entry(Path(file.path), Content.DATA, 5, format="ORC")
    with pytest.raises(SourceError, match=r"data\.parquet can't be read as ORC"):
        ids(FileTask(orc))
    unknown = equality_deletes(tmp_path, [99], SCHEMA.select("id"), [{"id": 1}])
    with pytest.raises(StorageError, match="compares field 99"):
        file_task(PlannedFile(file, (unknown,)), make(SCHEMA).metadata)
    nothing = equality_deletes(tmp_path, [], SCHEMA.select("id"), [{"id": 1}])
    with pytest.raises(StorageError, match="compares no column"):
        file_task(PlannedFile(file, (nothing,)), make(SCHEMA).metadata)
    Path(file.path).write_bytes(b"PAR1 cut short")
    with pytest.raises(SourceError, match=r"data\.parquet is not a whole Parquet file"):
        ids(FileTask(file))
