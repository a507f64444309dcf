"""Tables of format version 3 in each storage: vectors are written, read by another client, merged and removed there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.servers.fixtures import Place
from tests.services.test_modes_of_catalogs import CHANGED, NEXT, ROWS, Job, upserts
from volley import IcebergSinkConfig
from volley.iceberg import (
    IcebergTable,
    Partitioning,
    SchemaEvolution,
    SnapshotManager,
    orphan_files,
    remove_orphan_files,
)

pytestmark = [pytest.mark.waits, pytest.mark.services]

_COLUMNS = ("id", "city", "cents")


@pytest.fixture(params=["s3", "azure", "gcs", "local"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each storage in turn."""
    found: Place = request.getfixturevalue(request.param)
    return found


def by_pyiceberg(place: Place, folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = place.table(folder).scan(selected_fields=_COLUMNS).to_arrow().sort_by("id").to_pylist()
    return rows


def ids(config: IcebergSinkConfig) -> dict[int, int]:
    read = IcebergTable(config.ref).rows.include("row_id").to_arrow()
    return dict(zip(read["id"].to_pylist(), read["_row_id"].to_pylist(), strict=True))


def test_vectors_live_as_long_as_they_are_needed(place: Place, tmp_path: Path) -> None:
    config = place.config(tmp_path).with_table_properties({"format-version": "2"})
    config = config.with_partitioning([Partitioning.bucket("id", n=2)])
    job = Job(config, "merge_on_read")
    job.epoch(upserts(*ROWS), upserts({**ROWS[0], "cents": -1}))
    table = IcebergTable(config.ref)
    assert table.upgrade(3) == 2
    start = table.snapshots()[-1].id
    job.epoch(upserts(ROWS[0]), NEXT)
    assert by_pyiceberg(place, tmp_path) == table.rows.select(*_COLUMNS).to_arrow().sort_by("id").to_pylist() == CHANGED
    assert "PUFFIN" in place.table(tmp_path).inspect.delete_files()["file_format"].to_pylist()
    kinds = sorted(type(change).__name__ for change in table.changes(start, keys="id"))
    assert kinds == ["Delete", "Insert", "Update", "Update"]
    SchemaEvolution(config.ref.load().schema()).add("country", "string", default="NO").apply(config.ref)
    given = ids(config)
    assert len({*given.values()}) == len(CHANGED)
    table.rewrite_position_deletes()
    assert {*place.table(tmp_path).inspect.delete_files()["file_format"].to_pylist()} == {"PUFFIN"}
    table.compute_statistics()
    table.rewrite_manifests()
    table.compact(rewrite_all=True, sort_by=["cents desc"])
    SnapshotManager(config.ref).expire_snapshots("0s", 1)
    remove_orphan_files(config, 0)
    assert orphan_files(config, 0) == []
    assert place.table(tmp_path).inspect.delete_files().num_rows == 0
    assert by_pyiceberg(place, tmp_path) == CHANGED
    assert table.to_arrow().sort_by("id").to_pylist() == [{**row, "country": "NO"} for row in CHANGED]
    assert ids(config) == given
