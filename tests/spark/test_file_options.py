"""Options of files on both execution paths: the rows that DuckDB reads, with their files and numbers."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

from volley import Environment, FileSource, MemorySink, col

CSV = "exported today\n" + "".join(
    f"{number};{number},5;'it\\'s';{number % 28 + 1:02}.02.2024\n" for number in range(50)
)


def test_options_of_files(job_session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "a.json").write_text(json.dumps([{"id": number, "x": [number]} for number in range(50)], indent=1))
    csv = FileSource(
        tmp_path / "a.csv",
        schema="id long, price decimal(9,2), name string, day date",
        options={
            **{"delimiter": ";", "quote": "'", "escape": "\\", "decimal_point": ",", "skip_rows": 1},
            **{"column_names": ["id", "price", "name", "day"], "date_formats": "%d.%m.%Y"},
        },
        include=["file", "row"],
    )
    array = FileSource(tmp_path / "a.json", schema="id long, x array<int>", include="row")
    environment = Environment(spark=job_session, checkpoint_dir=tmp_path / "state")
    sinks = MemorySink("csv"), MemorySink("array")
    environment.execute(
        "options", *(environment.from_source(of).to_sink(to) for of, to in zip((csv, array), sinks, strict=True))
    )
    read = duckdb.sql(
        f"""select *, '{tmp_path}/a.csv', row_number() over () from read_csv('{tmp_path}/a.csv', delim=';', quote='''',
        escape='\\', decimal_separator=',', skip=1, header=false, dateformat='%d.%m.%Y', auto_detect=false,
        columns={{'id': 'bigint', 'price': 'decimal(9,2)', 'name': 'varchar', 'day': 'date'}})"""
    )
    assert sorted(tuple(row.values()) for row in sinks[0].rows()) == read.fetchall()
    of_array = duckdb.read_json(str(tmp_path / "a.json"), columns={"id": "bigint", "x": "int[]"}, format="array")
    assert (
        sorted(tuple(row.values()) for row in sinks[1].rows()) == of_array.project("*, row_number() over ()").fetchall()
    )


def test_columns_from_folders(job_session: SparkSession, tmp_path: Path) -> None:
    for number in range(4):
        folder = tmp_path / f"in/day=2024-01-0{number + 1}"
        folder.mkdir(parents=True)
        (folder / "1.csv").write_text(f"id\n{number}\n{number + 10}\n")
    days = Environment(spark=job_session, checkpoint_dir=tmp_path / "state").from_source(
        FileSource(f"{tmp_path}/in/*/*.csv", schema="id long, day date")
    )
    days.filter(col("day") > datetime.date(2024, 1, 2)).to_sink(sink := MemorySink("days")).execute("folders")
    read = duckdb.sql(f"from read_csv('{tmp_path}/in/*/*.csv', hive_partitioning=true) where day > '2024-01-02'")
    assert sorted(tuple(row.values()) for row in sink.rows()) == sorted(read.fetchall())
