"""The health of a table: its counts equal those of pyiceberg, and each advised command removes its finding."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from tests.iceberg.test_compaction import Lake, lake
from volley import ConfigError
from volley.iceberg import IcebergStorage, IcebergTable, SnapshotManager, TableRef

assert lake

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", LongType()))


def appended(folder: Path, commits: int, days: int) -> tuple[Catalog, TableRef]:
    """A table with one file a commit, written by plain pyiceberg."""
    ref = TableRef("db", "t", IcebergStorage.Local(str(folder)))
    catalog = ref.load_catalog()
    catalog.create_namespace("db")
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))
    table = catalog.create_table("db.t", SCHEMA, partition_spec=spec)
    for number in range(commits):
        table.append(pa.table({"id": [number] * (number + 1), "day": [number % days] * (number + 1)}))
    return catalog, ref


def test_it_counts_what_pyiceberg_counts_and_what_is_advised_mends_it(tmp_path: Path) -> None:
    catalog, ref = appended(tmp_path, commits=24, days=2)
    view = IcebergTable(ref)
    found, files = view.health(), catalog.load_table("db.t").inspect.files().to_pylist()
    sizes = Counter[int]()
    for file in files:
        sizes[file["partition"]["day"]] += file["file_size_in_bytes"]
    assert (found.rows, found.data_files, found.data_bytes) == (300, len(files), sizes.total())
    assert (found.partitions, found.skew) == (2, max(sizes.values()) / (sizes.total() / 2))
    assert (found.delete_files, found.snapshots, found.manifests) == (0, 24, 24)
    assert {size: count for size, count in found.sizes.items() if count} == {"below 1 MiB": 24}
    assert found.snapshot_id == catalog.load_table("db.t").current_snapshot().snapshot_id  # type: ignore[union-attr]
    assert not found.is_healthy
    assert [(finding.mend, finding.python) for finding in found.findings] == [
        ("volley compact", "IcebergTable(ref).compact()"),
        (None, "IcebergTable(ref).rewrite_manifests()"),
    ]
    assert "24 data files that are small or have many deleted rows would become about 2: volley compact" in str(found)
    view.compact()
    view.rewrite_manifests()
    mended = view.health()
    assert (mended.rows, mended.data_files, mended.is_healthy) == (300, 2, True)
    assert "healthy: nothing to mend" in str(mended)


def test_files_of_deletes(lake: Lake) -> None:
    files = lake.append(*range(0, 240, 20))
    for file in files:
        lake.commit([], [lake.files.positions((file, 1))])
        lake.commit([], [lake.files.positions((file, 2))])
    found = lake.view.health()
    assert (found.delete_files, found.deleted_rows) == (24, 24)
    assert "IcebergTable(ref).rewrite_position_deletes()" in [finding.python for finding in found.findings]
    lake.view.rewrite_position_deletes()
    assert lake.view.health().delete_files == 12


def test_orphans_are_looked_for_only_if_asked(tmp_path: Path) -> None:
    _, ref = appended(tmp_path, commits=1, days=1)
    view = IcebergTable(ref)
    assert (view.health().orphan_files, view.health(orphans=True).orphan_files) == (None, 0)
    with pytest.raises(ConfigError, match="orphans"):
        view.health(orphans="yes")  # type: ignore[arg-type]


def test_a_table_without_a_snapshot(tmp_path: Path) -> None:
    _, ref = appended(tmp_path, commits=0, days=1)
    found = IcebergTable(ref).health()
    assert (found.snapshot_id, found.rows, found.partitions, found.seconds_since_last_commit) == (None, 0, 0, None)
    assert found.is_healthy


def test_a_tag_is_refused_and_a_branch_is_looked_at(tmp_path: Path) -> None:
    _, ref = appended(tmp_path, commits=2, days=1)
    manager = SnapshotManager(ref)
    first = manager.list_snapshots()[0].id
    manager.create_tag("old", first)
    manager.create_branch("audit", first)
    with pytest.raises(ConfigError, match="is a tag"):
        IcebergTable(TableRef("db", "t", ref.storage, branch="old")).health()
    assert IcebergTable(TableRef("db", "t", ref.storage, branch="audit")).health().rows == 1


def test_as_metrics_and_json(tmp_path: Path) -> None:
    _, ref = appended(tmp_path, commits=3, days=1)
    found = IcebergTable(ref).health()
    families = {family.name: family for family in text_string_to_metric_families(found.to_prometheus_format())}
    (sample,) = families["volley_iceberg_table_data_files"].samples
    assert (sample.labels, sample.value) == ({"table": "db.t", "branch": "main"}, 3.0)
    assert families["volley_iceberg_table_orphan_files"].samples == []
    assert json.loads(json.dumps(found.to_dict()))["is_healthy"] is True
