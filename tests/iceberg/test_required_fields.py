"""Columns with required fields, as variants are, land where rows lack them: in new, copied and compacted files."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.duck import query
from tests.upserts.lake import Lake
from volley.iceberg import IcebergTable, SchemaEvolution, Upsert
from volley.iceberg.modes import Strategy
from volley.iceberg.write.required_fields import with_required_fields

_SCHEMA = pa.schema({"id": pa.int64(), "seq": pa.int64(), "a": pa.int64(), "v": pa.string()})


@pytest.mark.parametrize(
    ("strategy", "ignore_nulls", "sequence"),
    [("copy_on_write", False, None), ("merge_on_read", True, None), ("copy_on_write", True, "seq")],
)
def test_rows_without_variants_and_defaults(
    strategy: Strategy, ignore_nulls: bool, sequence: str | None, tmp_path: Path
) -> None:
    mode = Upsert("id", strategy=strategy, ignore_nulls=ignore_nulls, sequence=sequence)
    with closing(Lake(tmp_path, mode, _SCHEMA.remove(3), **{"format-version": "3"})) as lake:
        lake.epoch([{"id": number, "seq": 1} for number in range(3)])
        evolution = SchemaEvolution(lake.table().schema()).add("v", "variant").add("c", "int", default=5)
        evolution.add("d", "string", default="q").apply(lake.config.ref)
        lake.epoch([{"id": 1, "seq": 2}])
        lake.schema = _SCHEMA.append(pa.field("d", pa.string()))
        lake.epoch([{"id": 2, "seq": 2, "v": '{"a":1.5}', "d": "x"}, {"id": 3, "seq": 1}])
        lake.epoch([{"id": 3, "seq": 2, "v": "7"}], [{"id": 4, "seq": 2}])
        lacking = "q" if ignore_nulls else None
        expected: list[tuple[Any, ...]] = [(0, None, 5, "q"), (1, None, 5, "q"), (2, '{"a":1.5}', 5, "x")]
        expected += [(3, "7", 5, lacking), (4, None, 5, lacking)]
        for _ in range(2):
            rows = IcebergTable(lake.config.ref).to_arrow().sort_by("id").to_pylist()
            assert [(row["id"], row["v"], row["c"], row["d"]) for row in rows] == expected
            place = lake.table().metadata_location
            found = query(f"select id, v::json::varchar, c, d from iceberg_scan('{place}') order by id").fetchall()
            # DuckDB shows a variant that is null like no variant.
            assert [(row[0], None if row[1] == "null" else row[1], *row[2:]) for row in found] == expected
            assert IcebergTable(lake.config.ref).compact(rewrite_all=True).files_after == 1


@pytest.mark.parametrize(
    "data_type",
    [pa.uuid(), pa.list_(pa.uuid()), pa.map_(pa.string(), pa.uuid()), pa.struct([pa.field("u", pa.uuid(), False)])],
    ids=["uuid", "list", "map", "struct"],
)
def test_required_fields_with_uuids_in_structs_that_are_null(data_type: pa.DataType, tmp_path: Path) -> None:
    """pyarrow makes no array of a null of such a struct."""
    inner = pa.struct([pa.field("r", data_type, False)])
    column = pa.StructArray.from_arrays([pa.nulls(2, inner)], fields=[pa.field("s", inner)])
    pq.write_table(with_required_fields(pa.table({"c": column})), tmp_path / "file")
    assert pq.read_table(tmp_path / "file")["c"].to_pylist() == [{"s": None}, {"s": None}]
