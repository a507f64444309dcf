"""Tables and streams with a UUID inside a struct or list, of which pyarrow makes no empty array by itself."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

from volley import Environment, MemorySource, col
from volley.columns.nodes import lower
from volley.iceberg import IcebergSinkConfig, IcebergStorage, TableRef
from volley.iceberg.commit.probes import table_probes

PLACE = pa.struct({"at": pa.uuid()})
SCHEMA = pa.schema({"id": pa.int64(), "place": PLACE})


def rows(*ids: int) -> pa.Table:
    structs = pa.StructArray.from_arrays([pa.array([UUID(int=id) for id in ids], pa.uuid())], fields=[PLACE.field(0)])
    return pa.table([pa.array(ids, pa.int64()), structs], schema=SCHEMA)


def test_steps_that_leave_out_all_rows() -> None:
    stream = Environment().from_source(MemorySource(rows(1, 2)))
    steps = lower([stream.filter_expr(col("id") > 5)._node, stream.select("id", "place")._node], SCHEMA)
    (batch,) = rows(1, 2).to_batches()
    assert (steps(batch).num_rows, steps(batch).schema.field("place").type) == (0, PLACE)


@pytest.mark.parametrize("has_rows", [True, False])
def test_the_probe_of_a_commit_changes_nothing(tmp_path: Path, has_rows: bool) -> None:
    ref = TableRef("db", "t", IcebergStorage.Local(str(tmp_path)))
    catalog = ref.load_catalog()
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", SCHEMA)
    if has_rows:
        table.append(rows(1))
    before = table.metadata.refs, table.metadata.snapshots
    probe = table_probes(IcebergSinkConfig.from_table(ref), SCHEMA, commits=True)[-1]
    assert probe.name == "commit"
    assert ("committed and removed" if has_rows else "not tried: the table has no snapshot yet") in probe.run()
    after = ref.load().metadata
    assert (after.refs, after.snapshots) == before
    catalog.close()
