"""Files of an older partition spec whose column was dropped since: they are changed, and keep their partitions."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, Transform

from tests.upserts.lake import Lake
from volley import ConfigError
from volley.iceberg import IcebergTable, Upsert
from volley.iceberg.modes import CommitMode

MODES: dict[str, CommitMode] = {
    "merge_on_read": Upsert("id", strategy="merge_on_read"),
    "copy_on_write": Upsert("id", strategy="copy_on_write"),
}
COLUMNS: list[tuple[Transform[Any, Any], pa.DataType, list[Any], list[Any]]] = [
    (IdentityTransform(), pa.string(), ["x", None], ["x", None]),
    (IdentityTransform(), pa.decimal128(5, 2), [Decimal("-1.10"), Decimal(0)], [Decimal("-1.10"), Decimal("0.00")]),
    (IdentityTransform(), pa.float64(), [1e300, -0.0], [1e300, -0.0]),
    (BucketTransform(4), pa.int64(), [None, None], [None, None]),
    (
        DayTransform(),
        pa.timestamp("us"),
        [datetime(1969, 12, 31), datetime(1970, 1, 3)],
        [date(1969, 12, 31), date(1970, 1, 3)],
    ),
]


def dropped(
    folder: Path, mode: CommitMode, transform: Transform[Any, Any], data_type: pa.DataType, values: Any
) -> Lake:
    """A table of ids 0 and 1 that were partitioned by a column that it no longer has."""
    schema = pa.schema({"id": pa.int64(), "a": data_type})
    lake = Lake(folder, mode, schema)
    lake.driver()
    table = lake.table()
    with table.update_spec() as spec:
        spec.add_field("a", transform, "p")
    lake.epoch([{"id": number, "a": value} for number, value in enumerate(values)])
    table.refresh()
    with table.update_spec() as spec:
        spec.remove_field("p")
    with table.update_schema() as changed:
        changed.delete_column("a")
    lake.schema = pa.schema({"id": pa.int64()})
    return lake


def partitions(lake: Lake) -> list[Any]:
    """The partitions of that spec's entries in all manifests, as Avro has them."""
    table = lake.table()
    found = []
    for manifest in table.current_snapshot().manifests(table.io):  # type: ignore[union-attr]
        with Path(manifest.manifest_path.removeprefix("file://")).open("rb") as file:
            entries: Any = fastavro.reader(file)
            found += [entry["data_file"]["partition"].get("p", "none") for entry in entries]
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("transform", "data_type", "values", "kept"), COLUMNS)
def test_files_of_it_are_changed_and_keep_their_partitions(
    mode: str,
    transform: Transform[Any, Any],
    data_type: pa.DataType,
    values: list[Any],
    kept: list[Any],
    tmp_path: Path,
) -> None:
    lake = dropped(tmp_path, MODES[mode], transform, data_type, values)
    lake.epoch([{"id": 0}, {"id": 2}])
    assert sorted(row["id"] for row in IcebergTable(lake.config.ref).to_arrow().to_pylist()) == [0, 1, 2]
    assert set(map(repr, kept)) <= set(map(repr, partitions(lake)))
    lake.close()


def test_files_of_a_column_that_no_schema_has_any_more_are_refused(tmp_path: Path) -> None:
    """Java's expiry removes schemas that no snapshot has."""
    lake = dropped(tmp_path, MODES["copy_on_write"], *COLUMNS[0][:3])
    place = Path(lake.table().metadata_location.removeprefix("file://"))
    metadata = json.loads(place.read_text())
    current = metadata["current-schema-id"]
    metadata["schemas"] = [schema for schema in metadata["schemas"] if schema["schema-id"] == current]
    for snapshot in metadata["snapshots"]:
        snapshot["schema-id"] = current
    place.write_text(json.dumps(metadata))
    with pytest.raises(ConfigError, match="files of partition spec 1 can't be changed"):
        lake.epoch([{"id": 0}])
    lake.close()
