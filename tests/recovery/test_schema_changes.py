"""The driver is killed in the epoch that changes the table's schema: rows are there once, the schema changes once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.recovery.runs import ROWS_PER_FILE, load, run_again, run_and_die, write_input
from volley import IcebergSinkConfig, IcebergStorage
from volley.iceberg.schema.types import to_iceberg_schema

BEFORE = pa.schema({"id": pa.int32(), "label": pa.string(), "note": pa.string()})


def make_table(folder: Path) -> None:
    """A table with a row, whose ids are narrower than the job's and whose columns have other names."""
    storage = IcebergStorage.Local(str(folder / "lake"))
    catalog = IcebergSinkConfig(namespace="db", table="events", storage=storage).ref.load_catalog()
    catalog.create_namespace("db")
    table = catalog.create_table("db.events", to_iceberg_schema(BEFORE))
    table.append(pa.table({"id": [-1], "label": ["old"], "note": ["gone"]}, BEFORE))
    catalog.close()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("path", "schemas"),
    [("arrow-native", {"after-files": 1, "after-commit": 2}), ("general", {"before-commit": 1})],
    ids=["arrow-native", "general"],
)
def test_killed_wherever_the_schema_changes(path: str, schemas: dict[str, int], tmp_path: Path) -> None:
    write_input(tmp_path, files=2)
    make_table(tmp_path)
    for point, count in schemas.items():
        run_and_die(tmp_path, path, f"{point}@0", "--evolve")
        assert len(load(tmp_path).schemas()) == count
    run_again(tmp_path, path, evolve=True)

    table = load(tmp_path)
    rows = [{"id": i, "name": f"row {i}", "twice": 2 * i} for i in range(2 * ROWS_PER_FILE) if i % 7 != 0]
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [{"id": -1, "name": "old", "twice": None}, *rows]
    assert [str(field) for field in table.schema().fields] == [
        "1: id: optional long",
        "2: name: optional string",
        "4: twice: optional long",
    ]
    assert [s.schema_id for s in table.snapshots()] == [0, 1, 1]
    assert [s.summary["volley.epoch"] for s in table.snapshots()[1:] if s.summary] == ["0", "1"]
