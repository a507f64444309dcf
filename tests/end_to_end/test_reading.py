"""A job counts the rows that it reads of each source, and says if there is nothing to read."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from volley import (
    Environment,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    MemorySink,
    MemorySource,
    SourceError,
    VolleyError,
    col,
)


def test_rows_read_are_counted_by_source(environment: Environment, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("id\n" + f"{number}\n" * (number + 1))
    files = FileSource(f"{tmp_path}/*.csv", schema="id long", max_files_per_epoch=1)
    memory = MemorySource([{"id": number} for number in range(10)], schema="id long", rows_per_epoch=5)
    stream = environment.from_source(files).union(environment.from_source(memory)).filter_expr(col("id") > 4)
    job = environment.execute("count", stream.to_sink(MemorySink("a")), stream.to_sink(MemorySink("b")))
    assert job.metrics.records_written == 10
    names = {files.identity: 6, memory.identity: 10}
    assert dict(job.metrics.by_source) == names
    assert job.metrics.records_read == 16
    families = text_string_to_metric_families(job.metrics.to_prometheus_format())
    (family,) = [each for each in families if each.name == "volley_iceberg_source_records_read"]
    assert {sample.labels["source"]: sample.value for sample in family.samples} == names


def test_bad_rows_are_read_rows(native: Environment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\nx\n3\n")
    source = FileSource(tmp_path / "a.csv", schema="id long")
    job = native.from_source(source).to_sink(MemorySink("a"), dead_letter=MemorySink("bad")).execute("bad")
    assert (job.metrics.records_read, job.metrics.records_written, job.metrics.records_failed) == (3, 2, 1)


def test_a_table_without_rows_is_not_a_missing_one(environment: Environment, config: IcebergSinkConfig) -> None:
    stream = environment.from_source(IcebergSource(IcebergSourceConfig(config.ref))).to_sink(MemorySink("rows"))
    with pytest.raises(VolleyError, match="does not exist"):
        stream.execute("copy")
    sink = IcebergSink(config)
    environment.from_source(MemorySource([], schema="id long")).to_sink(sink).execute("make")
    with pytest.raises(SourceError, match="has no rows: nothing has written to main yet") as empty:
        stream.execute("copy")
    assert empty.value.hint
    environment.from_source(MemorySource([{"id": 1}])).to_sink(sink).execute("fill")
    assert stream.execute("copy").progress.rows == 1
    assert stream.execute("copy").progress.rows == 0  # nothing new is no error
