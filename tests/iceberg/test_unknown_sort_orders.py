"""Sort orders that can't be applied are refused by name before anything is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.upserts.lake import Lake
from volley import ConfigError
from volley.iceberg import IcebergTable, Upsert
from volley.iceberg.modes import CommitMode

MODES: dict[str, CommitMode] = {
    "merge_on_read": Upsert("id", strategy="merge_on_read"),
    "copy_on_write": Upsert("id", strategy="copy_on_write"),
}


@pytest.fixture(params=MODES)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path, MODES[request.param], pa.schema({"id": pa.int64(), "at": pa.int64()}))
    made.epoch([{"id": 2, "at": 1}, {"id": 1, "at": 2}])
    yield made
    made.close()


def set_order(lake: Lake, transform: str, column: int) -> None:
    """Put a sort order into the metadata, as other engines write it."""
    place = Path(lake.table().metadata_location.removeprefix("file://"))
    metadata = json.loads(place.read_text())
    field = {"transform": transform, "source-id": column, "direction": "asc", "null-order": "nulls-first"}
    metadata["sort-orders"].append({"order-id": 1, "fields": [field]})
    metadata["default-sort-order-id"] = 1
    place.write_text(json.dumps(metadata))


@pytest.mark.parametrize(("transform", "column"), [("zorder", 2), ("identity", 99)])
def test_such_an_order_is_refused_before_rows_are_written(transform: str, column: int, lake: Lake) -> None:
    set_order(lake, transform, column)
    files = lake.files()
    for use in (lambda: lake.epoch([{"id": 3, "at": 0}]), IcebergTable(lake.config.ref).compact):
        with pytest.raises(ConfigError, match=r"its sort order has field .*, whose column was dropped or whose"):
            use()
    assert lake.files() == files


def test_rows_are_written_in_an_order_that_is_known(lake: Lake) -> None:
    set_order(lake, "identity", 2)
    lake.epoch([{"id": 4, "at": 5}, {"id": 3, "at": 4}])
    assert [row["id"] for row in IcebergTable(lake.config.ref).to_arrow().to_pylist() if row["id"] > 2] == [3, 4]
    assert 1 in {file.file.sort_order_id for file in lake.table().scan().plan_files()}
