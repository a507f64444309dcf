"""Plans have every file with a matching row, and to each file the delete files that apply."""

from __future__ import annotations

import math
import struct
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    UUIDType,
)

from tests.iceberg.manifests import IO, avro, java_record, java_schema, manifest_of
from tests.iceberg.planned_tables import EQUALITY, PlannedTable
from volley.errors import ExpressionError, StorageError
from volley.iceberg.read.entries import entries_of, manifests_of
from volley.iceberg.read.planning import plan

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "score", DoubleType()),
    NestedField(4, "at", TimestampType()),
    NestedField(5, "uuid", UUIDType()),
    NestedField(6, "real", FloatType()),
)
WHOLE = PartitionSpec(spec_id=0)
BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"), spec_id=1)
BY_NAME = PartitionSpec(PartitionField(2, 1001, IdentityTransform(), "name"), spec_id=2)
BY_SCORE = PartitionSpec(PartitionField(3, 1002, IdentityTransform(), "score"), spec_id=3)


def number(value: int) -> bytes:
    return struct.pack("<q", value)


def double(value: float) -> bytes:
    return struct.pack("<d", value)


def bounds(field_id: int, low: bytes | None, high: bytes | None, **counts: Any) -> dict[str, Any]:
    limits = {"lower_bounds": low, "upper_bounds": high}
    statistics = {name: {field_id: value} for name, value in limits.items() if value is not None}
    return {**statistics, **{f"{name}_counts": {field_id: value} for name, value in counts.items()}}


@pytest.fixture
def table(tmp_path: Path) -> PlannedTable:
    return PlannedTable(tmp_path, SCHEMA, [WHOLE, BY_ID, BY_NAME, BY_SCORE])


# What is left out.


def test_partitions(table: PlannedTable) -> None:
    table.add(*(table.entry(f"f{part}", [part], spec_id=1) for part in (1, 2, None)))
    table.add(*(table.entry(f"g{part}", [part], spec_id=1) for part in (8, 9)))
    planned = table.plan("id = 2")
    assert [file.file.path for file in planned.files] == ["f2"]
    assert (planned.manifests, planned.skipped_manifests) == (1, 1)
    assert (planned.skipped_by_partition, planned.skipped_by_statistics) == (4, 0)
    assert set(table.planned("id is null")) == {"fNone"}
    assert set(table.planned("id != 8")) == {"f1", "f2", "fNone", "g9"}
    assert set(table.planned("id in (1, 9)")) == {"f1", "g9"}
    assert set(table.planned("id < 2 or id >= 9")) == {"f1", "g9"}
    assert set(table.planned("id is not null")) == {"f1", "f2", "g8", "g9"}
    assert table.planned("false") == {}


def test_statistics(table: PlannedTable) -> None:
    table.add(
        table.entry("low", spec_id=0, **bounds(1, number(1), number(5), value=10, null_value=0)),
        table.entry("high", spec_id=0, **bounds(1, number(6), number(9), value=10, null_value=1)),
        table.entry("null", spec_id=0, **bounds(1, None, None, value=10, null_value=10)),
        table.entry("none", spec_id=0),
        table.entry("empty", spec_id=0, record_count=0),
    )
    planned = table.plan("id = 5")
    assert [file.file.path for file in planned.files] == ["low", "none"]
    assert (planned.skipped_by_partition, planned.skipped_by_statistics) == (0, 3)
    assert set(table.planned("id is null")) == {"high", "null", "none"}
    assert set(table.planned("id is not null")) == {"low", "high", "none"}
    assert set(table.planned("id > 5")) == {"high", "none"}
    assert set(table.planned("id <= 5")) == {"low", "none"}
    assert set(table.planned()) == {"low", "high", "null", "none"}
    assert all(not file.file.lower for file in table.plan("id = 5").files)


@pytest.mark.parametrize("transform", [IdentityTransform(), BucketTransform(4)])
def test_partitions_of_a_date_that_became_a_timestamp_leave_nothing_out(transform: Any, tmp_path: Path) -> None:
    """Iceberg forbids this change: old partitions have days, or buckets of days. Those by day stay right."""
    dates = Schema(NestedField(4, "at", DateType()), schema_id=0)
    times = Schema(NestedField(4, "at", TimestampType()), schema_id=1)
    specs = [
        PartitionSpec(PartitionField(4, 1000 + n, t, "part"), spec_id=n)
        for n, t in enumerate((transform, DayTransform()))
    ]
    table = PlannedTable(tmp_path, dates, specs)
    day = date(2024, 2, 29).toordinal() - date(1970, 1, 1).toordinal()
    bucket = transform.transform(DateType())(day)
    table.add(table.entry("days", [bucket], spec_id=0), table.entry("later days", [bucket + 1], spec_id=0))
    table.add(table.entry("by day", [day], spec_id=1), table.entry("by later day", [day + 1], spec_id=1))
    table.schema = times
    table.metadata = table.metadata.model_copy(update={"schemas": [dates, times], "current_schema_id": 1})
    assert set(table.planned("at = '2024-02-29T00:00:00'")) == {"days", "later days", "by day"}


def test_nan_is_greater_than_all_numbers(table: PlannedTable) -> None:
    ten = {"value": 10, "null_value": 0}
    table.add(
        table.entry("some", spec_id=0, **bounds(3, double(1), double(2), **ten, nan_value=1)),
        table.entry("without", spec_id=0, **bounds(3, double(1), double(2), **ten, nan_value=0)),
        table.entry("only", spec_id=0, **bounds(3, None, None, **ten, nan_value=10)),
        table.entry("uncounted", spec_id=0, **bounds(3, double(1), double(2), **ten)),
        table.entry("as bounds", spec_id=0, **bounds(3, double(math.nan), double(math.nan), **ten)),
    )
    table.add(*(table.entry(f"in {part}", [part], spec_id=3) for part in (1.5, math.nan, None)))
    beyond = {"some", "only", "uncounted", "as bounds", "in nan"}
    assert set(table.planned("score > 5.0")) == beyond
    assert set(table.planned("score is nan")) == beyond
    assert set(table.planned("score < 1.0")) == {"as bounds"}
    smaller = {"some", "without", "uncounted", "as bounds", "in 1.5"}
    assert set(table.planned("score <= 1.5")) == smaller
    assert set(table.planned("score in (1.5, 7.0)")) == smaller


def test_a_literal_and_the_nearest_4_byte_float(table: PlannedTable) -> None:
    nearest = struct.pack("<f", 0.1)
    table.add(table.entry("file", spec_id=0, **bounds(6, nearest, nearest, value=1, null_value=0, nan_value=0)))
    for row_filter in ("real = 0.1", f"real = {struct.unpack('<f', nearest)[0]!r}", "real > 0.1"):
        assert set(table.planned(row_filter)) == {"file"}
    assert table.planned("real = 0.2") == {}


def test_texts(table: PlannedTable) -> None:
    counts = {"value": 10, "null_value": 0}
    table.add(
        table.entry("cut", spec_id=0, **bounds(2, b"ab", b"ad", **counts)),
        table.entry("exact", spec_id=0, **bounds(2, b"abc1", b"abc2", **counts)),
        table.entry("invalid", spec_id=0, **bounds(2, b"\xff", b"\xfe", **counts)),
    )
    assert set(table.planned("name like 'abcdef%'")) == {"cut", "invalid"}
    assert set(table.planned("name like 'abc%'")) == {"cut", "exact", "invalid"}
    assert set(table.planned("name not like 'abc%'")) == {"cut", "invalid"}
    assert set(table.planned("name like 'b%'")) == {"invalid"}
    assert set(table.planned("name = 'b'")) == {"invalid"}


def test_bounds_of_promoted_columns(tmp_path: Path) -> None:
    now = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "at", TimestampType()), NestedField(3, "x", DoubleType())
    )
    table = PlannedTable(tmp_path, now)
    old, day, real = struct.pack("<i", -5), struct.pack("<i", 3), struct.pack("<f", 1.5)
    table.add(
        table.entry("int", **bounds(1, old, old)),
        table.entry("date", **bounds(2, day, day)),
        table.entry("float", **bounds(3, real, real)),
    )
    assert set(table.planned("id = -5")) == {"int", "date", "float"}
    assert set(table.planned("id = 5")) == {"date", "float"}
    assert set(table.planned("at = '2020-01-01T00:00:00'")) == {"int", "date", "float"}
    assert set(table.planned("x < 1.0")) == {"int", "date"}


def test_uuids_that_java_orders_by_signed_numbers(table: PlannedTable) -> None:
    low, high = UUID(int=(1 << 127) + 5).bytes, UUID(int=7).bytes
    table.add(
        table.entry("signed", spec_id=0, **bounds(5, low, high)),
        table.entry("halves", spec_id=0, **bounds(5, UUID(int=1 << 63).bytes, UUID(int=5).bytes)),
        table.entry("one", spec_id=0, **bounds(5, high, high)),
        table.entry("high", spec_id=0, **bounds(5, UUID(int=1 << 70).bytes, UUID(int=1 << 71).bytes)),
    )
    assert set(table.planned(f"uuid = '{UUID(int=9)}'")) == {"signed", "halves"}
    assert set(table.planned(f"uuid = '{UUID(int=7)}'")) == {"signed", "halves", "one"}


def test_a_filter_on_a_column_that_another_spec_has(table: PlannedTable) -> None:
    table.add(table.entry("whole", spec_id=0, **bounds(1, number(1), number(2))))
    table.add(table.entry("id", [1], spec_id=1), table.entry("other id", [2], spec_id=1))
    table.add(table.entry("name", ["a"], spec_id=2))
    assert set(table.planned("id = 1")) == {"whole", "id", "name"}
    assert set(table.planned("id = 1 and name = 'b'")) == {"whole", "id"}


def test_a_partition_and_the_column_of_another_one(table: PlannedTable) -> None:
    table.add(
        table.entry("both", [1], spec_id=1, **bounds(2, b"a", b"c")),
        table.entry("neither", [1], spec_id=1, **bounds(2, b"d", b"e")),
    )
    planned = table.plan("id = 1 and name = 'b'")
    assert [file.file.path for file in planned.files] == ["both"]
    assert (planned.skipped_by_partition, planned.skipped_by_statistics) == (0, 1)


def test_specs_of_dropped_and_renamed_columns(tmp_path: Path) -> None:
    now = Schema(NestedField(2, "title", StringType()))
    both = PartitionSpec(*BY_ID.fields, *BY_NAME.fields, PartitionField(1, 1003, VoidTransform(), "gone"), spec_id=1)
    old = PlannedTable(tmp_path, SCHEMA, [both])
    old.add(old.entry("a", [1, "a", None]), old.entry("b", [2, "b", None]))
    table = PlannedTable(tmp_path, now, [both], old.manifests)
    assert set(table.planned("title = 'a'")) == {"a"}
    assert {file.file.path for file in table.plan("id = 2", SCHEMA).files} == {"b"}


def test_times_that_python_can_not_compute(tmp_path: Path) -> None:
    spec = PartitionSpec(
        PartitionField(4, 1000, YearTransform(), "year"), PartitionField(4, 1001, DayTransform(), "day")
    )
    table = PlannedTable(tmp_path, SCHEMA, [spec])
    far = 2**62
    table.add(
        table.entry(
            "far", [far // (86_400_000_000 * 365), far // 86_400_000_000], **bounds(4, number(far), number(far))
        )
    )
    assert set(table.planned(f"at = {far}")) == {"far"}
    assert set(table.planned(f"at < {far}")) == set()


def test_removed_files_are_not_planned(table: PlannedTable) -> None:
    table.add(table.entry("old", spec_id=0, status=ManifestEntryStatus.DELETED), table.entry("new", spec_id=0))
    table.add(table.entry("gone", spec_id=0, status=ManifestEntryStatus.DELETED))
    planned = table.plan()
    assert ([file.file.path for file in planned.files], planned.manifests, planned.skipped_manifests) == (["new"], 1, 1)
    entries = [entry for manifest in manifests_of(IO, table.snapshot) for entry in entries_of(IO, manifest)]
    assert [(entry.path, entry.is_live) for entry in entries] == [("old", False), ("new", True), ("gone", False)]


def test_an_unknown_column_is_named(table: PlannedTable) -> None:
    with pytest.raises(ExpressionError, match="nothing") as raised:
        table.plan("nothing = 1")
    assert "'score'" in str(raised.value)


def test_a_manifest_that_is_gone_is_named(table: PlannedTable) -> None:
    table.add(table.entry("file", spec_id=0))
    snapshot, metadata = table.snapshot, table.metadata
    Path(table.manifests[0].manifest_path).unlink()
    with pytest.raises(StorageError, match=r"reading .*manifest-0\.avro failed"):
        plan(IO, metadata, snapshot)
    Path(snapshot.manifest_list).write_bytes(b"<html>")
    with pytest.raises(StorageError, match=r"manifest list .*snapshot\.avro can't be read"):
        plan(IO, metadata, snapshot)


# Delete files.


def test_sequence_numbers(table: PlannedTable) -> None:
    table.add(*(table.entry(f"f{number}", spec_id=0, number=number) for number in (1, 2, 3)))
    table.add(table.positions("p2", None, number=2, spec_id=0))
    table.add(table.entry("e2", number=2, spec_id=0, content=EQUALITY, equality_ids=[1]))
    assert table.planned() == {"f1": {"p2", "e2"}, "f2": {"p2"}, "f3": set()}


def test_partitions_of_deletes(table: PlannedTable) -> None:
    table.add(*(table.entry(f"id {part}", [part], spec_id=1) for part in (1, 2, None)))
    table.add(*(table.entry(f"score {part}", [part], spec_id=3) for part in (math.nan, 0.0, -0.0)))
    table.add(table.entry("whole", spec_id=0))
    options: dict[str, Any] = {"number": 9, "content": EQUALITY, "equality_ids": [1]}
    table.add(*(table.entry(f"e {part}", [part], spec_id=1, **options) for part in (1, None)))
    table.add(*(table.entry(f"e {part}", [part], spec_id=3, **options) for part in (-math.nan, -0.0)))
    table.add(table.entry("global", spec_id=0, **options))
    table.add(table.positions("positions", None, [2], number=9, spec_id=1))
    table.add(table.positions("unpartitioned", None, number=9, spec_id=0))
    assert table.planned() == {
        **{"id 1": {"global", "e 1"}, "id 2": {"global", "positions"}, "id None": {"global", "e None"}},
        **{"score nan": {"global", "e nan"}, "score 0.0": {"global"}, "score -0.0": {"global", "e -0.0"}},
        **{"whole": {"global", "unpartitioned"}},
    }
    assert table.planned("id = 1")["id 1"] == {"global", "e 1"}


def test_a_spec_of_void_transforms_only_is_unpartitioned(tmp_path: Path) -> None:
    void = PartitionSpec(PartitionField(1, 1000, VoidTransform(), "id"), spec_id=4)
    table = PlannedTable(tmp_path, SCHEMA, [BY_ID, void])
    table.add(table.entry("file", [1], spec_id=1))
    table.add(table.entry("global", [None], number=2, spec_id=4, content=EQUALITY, equality_ids=[1]))
    assert table.planned() == {"file": {"global"}}


def test_paths_of_position_deletes(table: PlannedTable) -> None:
    table.add(*(table.entry(f"s3://b/{name}%2F.parquet", spec_id=0) for name in "ace"))
    a, c, e = (f"s3://b/{name}%2F.parquet" for name in "ace")
    table.add(
        table.positions("only c", (c, c), number=2, spec_id=0),
        table.positions("a to c", (a, c), number=2, spec_id=0),
        table.positions("cut", ("s3://b/b", "s3://b/d"), number=2, spec_id=0),
        table.positions("cut off", ("s3://b/a", "s3://b/c%2"), number=2, spec_id=0),
        table.positions("any", None, number=2, spec_id=0),
        table.positions("elsewhere", ("s3://z", "s3://z"), number=2, spec_id=0),
    )
    assert table.planned() == {
        a: {"a to c", "cut off", "any"},
        c: {"only c", "a to c", "cut", "cut off", "any"},
        e: {"any"},
    }
    deletes = {delete.path: delete for file in table.plan().files for delete in file.deletes}
    assert deletes["only c"].referenced_file == c
    assert deletes["any"].referenced_file is None


def test_deletion_vectors_replace_position_deletes(tmp_path: Path) -> None:
    from pyiceberg.manifest import ManifestContent

    table = PlannedTable(tmp_path, SCHEMA, [WHOLE])
    table.add(*(table.entry(name, number=number) for name, number in (("a", 1), ("b", 1), ("c", 5))))
    table.add(table.positions("pa", ("a", "a"), number=2), table.positions("all", None, number=2))
    table.add(table.entry("e", number=3, content=EQUALITY, equality_ids=[1]))
    schema = java_schema(3)
    schema["fields"][-1]["type"]["fields"][3]["type"]["fields"] = []
    records = [
        java_record(3, status=0, sequence_number=3, content=1, file_path="v.puffin", file_format="PUFFIN", partition={},
                referenced_data_file=path, content_offset=4 + number, content_size_in_bytes=40, equality_ids=None)
        for number, path in enumerate("ac")
    ]  # fmt: skip
    counts = {f"{kind}_{what}_count": 2 for kind in ("added", "existing", "deleted") for what in ("files", "rows")}
    file = tmp_path / "vectors.avro"
    manifest = manifest_of(file, avro(schema, records), content=ManifestContent.DELETES, **counts)
    table.manifests.append(manifest)
    assert table.planned() == {"a": {"v.puffin", "e"}, "b": {"all", "e"}, "c": set()}
    (vector, _) = table.plan().files[0].deletes
    assert (vector.format, vector.referenced_file, vector.blob_offset, vector.blob_size) == ("PUFFIN", "a", 4, 40)


def test_deletes_older_than_all_data_are_not_read(table: PlannedTable) -> None:
    table.add(table.positions("old", None, number=2, spec_id=0))
    table.add(table.entry("new", number=5, spec_id=0))
    # The manifest's own number says when it was written last.
    table.manifests[0].sequence_number = 4
    planned = table.plan()
    assert (planned.files[0].deletes, planned.manifests, planned.skipped_manifests) == ((), 1, 1)
