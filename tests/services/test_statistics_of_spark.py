"""Statistics by Iceberg's Spark runtime and ours: the same sketches of the same rows, and each accepts the other's."""

from __future__ import annotations

from pathlib import Path

import datasketches
from pyiceberg.table import Table
from pyiceberg.table.puffin import PuffinFile

from tests.servers.iceberg_spark import IcebergSpark
from tests.services.readers import Lake, spark_sql
from volley.iceberg import IcebergTable

_COLUMNS = {
    "flag": "id % 2 = 0",
    "int": "cast(id as int)",
    "long": "id * 1000003",
    "float": "cast(id as float) / 3",
    "double": "id / 7",
    "price": "cast((id - 1500) * 1.25 as decimal(20, 3))",
    "day": "date_add(date '2026-01-01', cast(id as int))",
    "at": "timestamp_seconds(id)",
    "wall": "cast(timestamp_seconds(id) as timestamp_ntz)",
    "text": "if(id % 10 = 0, null, concat('ñame ', id))",
    "bytes": "cast(repeat('x', cast(id % 300 as int)) as binary)",
}


def sketches(table: Table) -> dict[int, tuple[set[int], str]]:
    """The hashes of each field, and the number of its distinct values."""
    (registered,) = table.metadata.statistics
    puffin = PuffinFile(Path(registered.statistics_path.removeprefix("file:")).read_bytes())
    return {
        blob.fields[0]: (
            set(datasketches.compact_theta_sketch.deserialize(puffin.get_blob_payload(blob))),
            blob.properties["ndv"],
        )
        for blob in puffin.footer.blobs
    }


def test_sketches_are_those_of_spark(iceberg_spark: IcebergSpark, tmp_path: Path) -> None:
    lake = Lake(tmp_path, iceberg_spark)
    selected = ", ".join(f"{expression} as {name}" for name, expression in _COLUMNS.items())
    spark_sql(
        lake,
        "create namespace volley.db",
        f"create table volley.db.t using iceberg as select {selected} from range(3000)",
        "call volley.system.compute_table_stats('db.t')",
    )
    table = lake.table("t")
    theirs = sketches(table)
    assert len(theirs) == len(_COLUMNS)
    known = IcebergTable(lake.config("t").ref).compute_statistics()
    assert (known.data_files, known.distinct["text"]) == (0, 2700)

    snapshot = table.metadata.current_snapshot_id
    assert snapshot is not None
    table.update_statistics().remove_statistics(snapshot).commit()
    ours = IcebergTable(lake.config("t").ref).compute_statistics()
    assert ours.data_files > 0
    assert sketches(lake.table("t")) == theirs
    (row,) = spark_sql(lake, "select count(distinct text) as texts from volley.db.t")[0]
    assert row["texts"] == ours.distinct["text"]
