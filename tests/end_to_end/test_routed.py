"""A sink with many tables in a job: on both paths, with bad rows, beside a sink that writes to one of its tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, MemorySource, PlanError, col
from volley.iceberg import TableRef

ROWS = [{"id": id, "shop": [None, "oslo", "bergen", "a/b"][id % 4], "note": None} for id in range(40)]


@pytest.mark.usefixtures("spark")
def test_a_job_with_many_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = IcebergStorage.Local(str(tmp_path / "lake"))
    config = IcebergSinkConfig(namespace="db", table="oslo", storage=storage)
    environment = Environment(checkpoint_dir=str(tmp_path / "checkpoints"))
    rows = environment.from_source(MemorySource(ROWS, "id long, shop string, note string", rows_per_epoch=20))
    tables = rows.to_sink(IcebergSink(config.with_dead_letter("bad")).routed("{shop}", omit=["note"]))
    # Without `note`, which the other sink adds: each has its own marks in the table.
    job = environment.execute("many", tables, rows.filter(col("id") == 1).to_sink(IcebergSink(config)))

    def ids(table: str, column: str = "id") -> list[int]:
        loaded = TableRef("db", table, storage).load()
        return sorted(loaded.scan().to_arrow()[column].to_pylist())

    assert ids("oslo") == [1, *range(1, 40, 4)]
    assert ids("bergen") == [*range(2, 40, 4)]
    assert len(ids("bad", "position")) == 20
    assert (job.progress.rows, job.progress.rejected, job.orphans) == (20, 20, [])
    tables.explain()
    assert "RoutedSink('{shop}', Append(), omit=['note'])" in capsys.readouterr().out


@pytest.mark.usefixtures("spark")
def test_a_job_of_many_tables_that_starts_over(tmp_path: Path) -> None:
    storage = IcebergStorage.Local(str(tmp_path / "lake"))
    config = IcebergSinkConfig(namespace="db", table="{shop}", storage=storage)
    environment = Environment(checkpoint_dir=str(tmp_path / "checkpoints"))
    named = [row for row in ROWS if row["shop"] in ("oslo", "bergen")]
    source = MemorySource(named, "id long, shop string, note string")
    pipeline = environment.from_source(source).to_sink(IcebergSink(config).routed())

    def rows() -> list[int]:
        return [TableRef("db", table, storage).load().scan().count() for table in ("oslo", "bergen")]

    pipeline.execute("over")
    assert rows() == [10, 10]
    with pytest.raises(PlanError, match="rows of earlier queries of job 'over'"):
        pipeline.execute("over", fresh=True)
    pipeline.execute("over", fresh=True, into="replace")
    assert rows() == [10, 10]
    pipeline.execute("over", fresh=True, into="append")
    assert rows() == [20, 20]
