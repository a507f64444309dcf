"""Tables whose data files and delete files are Avro or ORC: read as by Spark, and turned into Parquet by compaction."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.servers.iceberg_spark import IcebergSpark
from tests.services.readers import Lake, java_commit, spark_sql
from tests.upserts.lake import do
from volley import Epoch, IcebergSink, Metrics, SinkContext
from volley.iceberg import IcebergTable, Upsert

_COLUMNS = (
    "id bigint, name string, price decimal(9, 2), large decimal(30, 3), day date, at timestamp, local timestamp_ntz, "
    "raw binary, real double, flag boolean, tags array<string>, sizes map<string, int>, point struct<x: int, y: float>"
)
_ROWS = (
    "select id, nullif(concat('n', id % 7), 'n4'), cast(id / 4 as decimal(9, 2)), cast(id as decimal(30, 3)) / 8, "
    "date_add(date'1969-12-25', cast(id as int)), timestamp_micros(id * 1000001), "
    "timestamp_ntz'2024-02-29 12:00:00' + make_interval(0, 0, 0, int(id)), encode(string(id), 'utf-8'), id / 3.0D, "
    "id % 2 = 0, if(id % 5 = 1, null, array('a', null)), if(id % 5 = 2, null, map('k', int(id))), "
    "if(id % 5 = 3, null, named_struct('x', int(id), 'y', float(0.1))) from range({}, {})"
)


@pytest.fixture(scope="module")
def lake(iceberg_spark: IcebergSpark, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake(tmp_path_factory.mktemp("lake"), iceberg_spark)
    made.catalog().create_namespace("db")
    return made


def rows_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # Volley has pairs of maps, Spark dictionaries.
    return sorted(({**row, "sizes": dict(row["sizes"] or {})} for row in found), key=lambda row: int(row["id"]))


def both(lake: Lake, name: str) -> list[dict[str, Any]]:
    """The rows of a table, which are the same for Volley and Spark."""
    (theirs,) = spark_sql(lake, f"from volley.db.{name}")
    ours = rows_of(IcebergTable(lake.config(name)).to_arrow().to_pylist())
    ours = [{**row, "at": row["at"] and row["at"].replace(tzinfo=None)} for row in ours]
    assert ours == [{**row, "raw": bytes(row["raw"])} for row in rows_of(theirs)]
    return ours


def formats(lake: Lake, name: str) -> set[tuple[int, str]]:
    (files,) = spark_sql(lake, f"select content, file_format from volley.db.{name}.files")
    return {(row["content"], row["file_format"]) for row in files}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("form", ["AVRO", "ORC"])
def test_old_files_are_read_upserted_and_turned_into_parquet(form: str, version: int, lake: Lake) -> None:
    name = f"{form.lower()}{version}"
    table = f"volley.db.{name}"
    spark_sql(
        lake,
        f"create table {table} ({_COLUMNS}) using iceberg tblproperties ('format-version' = '2', "
        f"'write.format.default' = '{form.lower()}', 'write.delete.mode' = 'merge-on-read')",
        f"insert into {table} {_ROWS.format(1, 40)}",
        f"delete from {table} where id in (3, 17)",
        java_commit(table, [{"name": "n5"}], form=form),
        f"insert into {table} {_ROWS.format(40, 50)}",
        java_commit(table, [{"id": 41}, {"id": 42}], form=form),
        *([f"alter table {table} set tblproperties ('format-version' = '3')"] if version == 3 else []),
    )
    assert formats(lake, name) == {(content, form) for content in range(3)}
    ids = [n for n in range(1, 50) if n not in (3, 17, 41, 42) and (n % 7 != 5 or n >= 40)]
    assert [row["id"] for row in both(lake, name)] == ids
    config = lake.config(name).with_commit_mode(Upsert("id", strategy="merge_on_read"))
    schema = pa.schema({"id": pa.int64(), "name": pa.string(), "raw": pa.binary()})
    committer = IcebergSink(config).open(SinkContext("job", schema, Metrics(), do))
    epoch = Epoch("2b6f8a5e-0000-0000-0000-000000000000", 0)
    task = committer.writer(epoch).open(0)
    task.write(pa.record_batch({"id": [1, 45, 60], "name": ["z"] * 3, "raw": [b"r"] * 3}, schema))
    committer.last_epoch(epoch.query_id)
    committer.commit(epoch, [task.close()])
    rows = both(lake, name)
    assert [row["id"] for row in rows] == [*ids, 60]
    maintained = IcebergTable(lake.config(name))
    maintained.rewrite_position_deletes()
    assert formats(lake, name) == {(0, form), (0, "PARQUET"), (1, "PUFFIN" if version == 3 else "PARQUET"), (2, form)}
    assert both(lake, name) == rows
    maintained.compact()
    maintained.rewrite_position_deletes(convert_equality=True)
    assert formats(lake, name) == {(0, "PARQUET")}
    assert both(lake, name) == rows
