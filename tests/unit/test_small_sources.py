"""Which sources count as small, by a quick look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from tests.unit.test_file_options import splits
from volley import EOF, Environment, FileSource, MemorySink, MemorySource, RateSource, SourceContext, col
from volley.plan.graph import JobGraph
from volley.stream.stream import DataStream


def graph(stream: DataStream) -> JobGraph:
    return JobGraph.of(stream.to_sink(MemorySink())._writes)


@pytest.mark.parametrize(
    ("rows", "is_small"),
    [
        ([], True),
        ([{"id": 1}, EOF], True),
        ([{"id": 1}] * 1001, False),
        (pa.table({"id": [1]}), True),
        (pa.table({"id": range(1001)}), False),
        ([pa.record_batch({"id": [1]})] * 2, True),
        ([pa.record_batch({"id": range(501)})] * 2, False),
    ],
)
def test_rows_of_memory_count(rows: Any, is_small: bool) -> None:
    assert MemorySource(rows).is_small() is is_small


def test_a_folder_of_small_files_is_small(tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text('{"id": 1}\n')
    assert FileSource(tmp_path, "json").is_small()
    assert FileSource(tmp_path / "0.json").is_small()
    assert FileSource(f"{tmp_path}/", "json").is_small()


def test_what_a_quick_look_can_not_tell_is_not_small(tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text('{"id": 1}\n')
    assert not FileSource(f"{tmp_path}/*.json").is_small()
    assert not FileSource("s3://bucket/in", "json").is_small()
    assert not FileSource(tmp_path / "none", "json").is_small()
    assert not FileSource(tmp_path, "json", bounded=False).is_small()
    assert not RateSource(1).is_small()


def test_large_many_or_nested_files_are_not_small(tmp_path: Path) -> None:
    large, many, nested = (tmp_path / name for name in ("large", "many", "nested"))
    for folder in (large, many, nested / "more"):
        folder.mkdir(parents=True)
    (large / "0.json").write_bytes(bytes((1 << 20) + 1))
    for number in range(101):
        (many / f"{number}.json").touch()
    assert [FileSource(folder, "json").is_small() for folder in (large, many, nested)] == [False] * 3
    assert not FileSource(large / "0.json").is_small()


def test_no_driver_reads_rows_of_orc_files(tmp_path: Path) -> None:
    for name, is_small in (("in.parquet", True), ("in.orc", False)):
        write_table = (parquet if is_small else orc).write_table
        write_table(pa.table({"id": [1]}), tmp_path / name)
        source = FileSource(tmp_path / name)
        reader = source.open(SourceContext(str(tmp_path / f"{name}-state")))
        (split,) = splits(reader)
        assert source.is_small() is is_small
        assert (reader.size(split) is not None) is is_small


def test_a_job_with_a_function_is_not_small() -> None:
    stream = Environment().from_source(MemorySource([{"id": 1}]))
    assert graph(stream.filter(col("id") > 0)).is_small
    assert not graph(stream.map(lambda row: row)).is_small
    assert not graph(stream.union(Environment().from_source(MemorySource([{"id": 1}] * 1001)))).is_small
