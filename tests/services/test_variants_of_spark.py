"""Variants that Spark and Volley write into one table, each read by the other; shredded ones too."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.iceberg.test_shredded_variants import shown
from tests.iceberg.test_variant_tables import entries_of
from tests.servers.iceberg_spark import IcebergSpark
from tests.services.readers import Lake, spark_sql
from tests.upserts.lake import do
from volley import Epoch, IcebergSink, Metrics, SchemaEvolution, SinkContext
from volley.iceberg import IcebergTable, Upsert
from volley.iceberg.modes import CommitMode

QUERY = "2b6f8a5e-0000-0000-0000-000000000000"
TEXTS = pa.schema({"id": pa.int32(), "v": pa.string()})
EACH_TYPE = {
    1: """parse_json('{"b": [1, 2.5, null, "x", true, {"c": 12345678901234}], "a": "long é text"}')""",
    2: "null",
    3: "parse_json('null')",
    4: "cast(timestamp'1969-12-31 23:59:59.456789' as variant)",
    5: "cast(timestamp_ntz'2024-01-01 01:02:03' as variant)",
    6: "cast(date'2024-02-29' as variant)",
    7: "cast(x'00ff' as variant)",
    8: "cast(cast(1.1 as float) as variant)",
    9: "cast(cast('-12345678901234567890.123' as decimal(30, 3)) as variant)",
    10: "cast(0.1 as variant)",
    11: f"parse_json('\"{'x' * 100}\"')",
    12: "to_variant_object(named_struct('i', 1, 'at', timestamp'2024-01-01 00:00:00', 'm', map('k', array(1.5))))",
}
ROW_BY_ROW = "tblproperties ('read.parquet.vectorization.enabled' = 'false')"
SHREDDED = (
    "case when id = 7 then null when id = 9 then parse_json('[1,2]') "
    """when id = 11 then parse_json('{"a": "text", "z": {"q": 1}}') """
    """else parse_json(concat('{"a": ', id, ', "b": "x', id, '", "o": {"p": 1.5, "q": ', id, '}, "l": [1, ', id, """
    "']}')) end"
)


@pytest.fixture(scope="module")
def lake(iceberg_spark: IcebergSpark, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake(tmp_path_factory.mktemp("lake"), iceberg_spark)
    made.catalog().create_namespace("db")
    return made


def write(
    lake: Lake, name: str, number: int, rows: list[dict[str, Any]], mode: CommitMode | None, schema: pa.Schema
) -> None:
    config = lake.config(name)
    config = config if mode is None else config.with_commit_mode(mode)
    committer = IcebergSink(config).open(SinkContext("job", schema, Metrics(), do))
    epoch = Epoch(QUERY, number)
    committer.last_epoch(QUERY)
    task = committer.writer(epoch).open(0)
    task.write(pa.RecordBatch.from_pylist(rows, schema))
    committer.commit(epoch, [task.close()])


def both(lake: Lake, name: str) -> dict[int, Any]:
    """The variants of a table by the id of their row, which are the same for Volley and Spark; parsed."""
    (theirs,) = spark_sql(lake, f"select id, to_json(v) v from volley.db.{name}")
    ours = IcebergTable(lake.config(name)).to_arrow().to_pylist()
    assert len(ours) == len(theirs)
    found = [{row["id"]: row["v"] and (json.loads(row["v"]),) for row in rows} for rows in (ours, theirs)]
    assert found[0] == found[1]
    return found[0]


def files(lake: Lake, name: str) -> list[pq.ParquetFile]:
    (found,) = spark_sql(lake, f"select file_path from volley.db.{name}.files where content = 0")
    return [pq.ParquetFile(row["file_path"].removeprefix("file:")) for row in found]


def columns_of(file: pq.ParquetFile) -> list[str]:
    return [file.schema.column(number).path for number in range(len(file.schema))]


@pytest.mark.parametrize("is_shredded", [False, True], ids=["whole", "shredded"])
def test_both_write_and_read_a_table_in_turn(is_shredded: bool, lake: Lake) -> None:
    name = "shredded" if is_shredded else "whole"
    rows = ", ".join(f"({key}, {value})" for key, value in EACH_TYPE.items())
    source = f"select int(id), {SHREDDED} from range(1, 60)" if is_shredded else f"select * from values {rows}"
    spark_sql(
        lake,
        f"create table volley.db.{name} (id int, v variant) using iceberg tblproperties ('format-version' = '3', "
        f"'write.parquet.shred-variants' = '{str(is_shredded).lower()}', 'write.delete.mode' = 'merge-on-read')",
        f"insert into volley.db.{name} {source}",
    )
    assert any("typed_value" in str(file.schema) for file in files(lake, name)) == is_shredded
    expected = both(lake, name)
    (texts,) = spark_sql(lake, f"select id, to_json(v) v from volley.db.{name}")
    ours = IcebergTable(lake.config(name)).to_arrow().to_pylist()
    assert {row["id"]: row["v"] for row in ours} == {row["id"]: row["v"] for row in texts}
    added = {1000: '{"new": [1, {"x": 1.25}], "t": "é"}', 1001: None, 1002: "null"}
    write(lake, name, 0, [{"id": key, "v": text} for key, text in added.items()], None, TEXTS)
    expected |= {key: text and (json.loads(text),) for key, text in added.items()}
    assert both(lake, name) == expected
    for number, strategy in enumerate(("copy_on_write", "merge_on_read"), 1):
        mode = Upsert("id", strategy=strategy)  # type: ignore[arg-type]
        write(
            lake, name, number, [{"id": number, "v": f'{{"by": "{strategy}"}}'}, {"id": 2000, "v": "[]"}], mode, TEXTS
        )
        expected |= {number: ({"by": strategy},), 2000: ([],)}
        assert both(lake, name) == expected
    if is_shredded:
        spark_sql(lake, f"alter table volley.db.{name} set {ROW_BY_ROW}")
    spark_sql(
        lake, f"delete from volley.db.{name} where id = 5", f"insert into volley.db.{name} values (5, parse_json('5'))"
    )
    expected[5] = (5,)
    assert both(lake, name) == expected
    table = IcebergTable(lake.config(name))
    for options in ({}, {"sort_by": ["id desc"]}):
        assert table.compact(rewrite_all=True, **options).files_after == 1  # type: ignore[arg-type]
        assert both(lake, name) == expected
        (file,) = files(lake, name)
        assert "group field_id=2 v (Variant(1))" in str(file.schema)
        assert ("typed_value" in str(file.schema)) == is_shredded
    spark_sql(
        lake, f"call volley.system.rewrite_data_files(table => 'db.{name}', options => map('rewrite-all', 'true'))"
    )
    assert both(lake, name) == expected
    (nulls,) = spark_sql(lake, f"select id from volley.db.{name} where v is null order by id")
    assert [row["id"] for row in nulls] == sorted(key for key, value in expected.items() if value is None)


def test_spark_reads_what_is_shredded_as_it_did_before(lake: Lake) -> None:
    """Files that compaction and an upsert write in the place of Spark's have the same columns of types, and bounds."""
    fields = """'{"a": ', id * 100, ', "d": ', id, '.5, "s": "text ', id, '", "o": {"n": ', id * 150, '}}'"""
    value = f"parse_json(concat({fields}))"
    spark_sql(
        lake,
        "create table volley.db.kept (id int, v variant) using iceberg "
        "tblproperties ('format-version' = '3', 'write.parquet.shred-variants' = 'true')",
        *(
            f"insert into volley.db.kept select /*+ COALESCE(1) */ int(id), {value} from range({start}, {start + 50})"
            for start in (100, 150)
        ),
    )
    table = IcebergTable(lake.config("kept"))
    columns = {"$['a']", "$['d']", "$['o']['n']", "$['s']"}
    of_both = [(shown(file.lower_bounds[2]), shown(file.upper_bounds[2])) for file in entries_of(table)]
    low, high = (
        {name: fold(pair[at][name] for pair in of_both) for name in columns} for at, fold in ((0, min), (1, max))
    )
    assert (low["$['a']"], high["$['s']"]) == (10_000, "text 199")
    queries = (
        "select id, to_json(v) v, _row_id, _last_updated_sequence_number at from volley.db.kept order by id",
        "select count(*) n, sum(variant_get(v, '$.o.n', 'int')) s from volley.db.kept "
        "where variant_get(v, '$.a', 'int') > 19000",
        "select id from volley.db.kept where variant_get(v, '$.s', 'string') = 'text 150'",
        "select id from volley.db.kept where id > 197",
    )
    # Its vectorized reader, which takes queries without the column, refuses its own files with shredded variants.
    with pytest.raises(AssertionError, match="Unsupported variant: shredded typed_value"):
        spark_sql(lake, "select id from volley.db.kept")
    spark_sql(lake, f"alter table volley.db.kept set {ROW_BY_ROW}")
    before = spark_sql(lake, *queries)
    assert before[1:3] == [[{"n": 9, "s": sum(range(28_650, 30_000, 150))}], [{"id": 150}]]
    shapes = {str(file.schema.to_arrow_schema().field("v").type) for file in files(lake, "kept")}
    assert table.compact(rewrite_all=True).files_after == 1
    (file,) = files(lake, "kept")
    assert {str(file.schema.to_arrow_schema().field("v").type)} == shapes
    assert [(shown(file.lower_bounds[2]), shown(file.upper_bounds[2])) for file in entries_of(table)] == [(low, high)]
    assert spark_sql(lake, *queries) == before
    write(lake, "kept", 0, [{"id": 150, "v": "{}"}], Upsert("id", strategy="copy_on_write"), TEXTS)
    assert sorted("typed_value" in str(file.schema) for file in files(lake, "kept")) == [False, True]
    rows, counts, found, _ = spark_sql(lake, *queries)
    assert (counts, found) == (before[1], [])
    assert [row for row in rows if row["id"] != 150] == [row for row in before[0] if row["id"] != 150]
    assert [row["_row_id"] for row in rows] == [row["_row_id"] for row in before[0]]


@pytest.mark.parametrize("is_shredded", [False, True], ids=["whole", "shredded"])
def test_spark_reads_typed_values_of_a_column_that_volley_added(is_shredded: bool, lake: Lake) -> None:
    name = f"typed_{is_shredded}"
    spark_sql(
        lake,
        f"create table volley.db.{name} (id int) using iceberg tblproperties ('format-version' = '3', "
        f"'write.parquet.shred-variants' = '{str(is_shredded).lower()}')",
        f"insert into volley.db.{name} values (1)",
    )
    ref = lake.config(name).ref
    SchemaEvolution(ref.load().schema()).add("v", "variant").apply(ref)
    kinds: dict[str, pa.DataType] = {
        **{"n": pa.int64(), "d": pa.decimal128(9, 2), "at": pa.timestamp("us", "UTC"), "b": pa.binary()},
        **{"t": pa.string(), "f": pa.float64(), "yes": pa.bool_(), "day": pa.date32(), "l": pa.list_(pa.int32())},
        **{"local": pa.timestamp("us"), "o": pa.struct({"x": pa.decimal128(38, 1)})},
    }
    schema = pa.schema({"id": pa.int32(), "v": pa.struct(kinds)})
    at, many = datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC), Decimal(f"{'9' * 30}.5")
    row: dict[str, Any] = {
        "n": 1 << 40,
        "d": None,
        "at": at,
        "b": b"\x00\xff",
        "t": "x",
        "f": 0.5,
        "yes": True,
        "day": at.date(),
    }
    row |= {"l": [1, None, 70_000], "local": at.replace(tzinfo=None), "o": {"x": many}}
    write(lake, name, 0, [{"id": 2, "v": row}], None, schema)
    typed = [path for file in files(lake, name) for path in columns_of(file) if path.endswith(".typed_value")]
    assert len(typed) == (len(kinds) - 1 if is_shredded else 0)
    for _ in range(2):
        (rows,) = spark_sql(
            lake,
            "select id, try_variant_get(v, '$.n', 'bigint') n, try_variant_get(v, '$.at', 'timestamp') at, "
            "try_variant_get(v, '$.b', 'binary') b, try_variant_get(v, '$.l[2]', 'int') l, "
            "try_variant_get(v, '$.o.x', 'decimal(38, 1)') x, try_variant_get(v, '$.day', 'date') day, "
            f"schema_of_variant(v) kind from volley.db.{name} order by id",
        )
        assert rows[0] == dict.fromkeys(rows[0]) | {"id": 1}
        assert [rows[1][name] for name in ("n", "b", "l", "x", "day")] == [
            1 << 40,
            b"\x00\xff",
            70_000,
            many,
            at.date(),
        ]
        assert "at: TIMESTAMP, b: BINARY, d: VOID, day: DATE, f: DOUBLE" in rows[1]["kind"]
        IcebergTable(ref).compact(rewrite_all=True)


@pytest.mark.parametrize("strategy", ["copy_on_write", "merge_on_read"])
def test_spark_reads_types_of_tables_that_are_nested_and_columns_without_values(lake: Lake, strategy: Any) -> None:
    name = f"nested_{strategy}"
    spark_sql(
        lake,
        f"create table volley.db.{name} (id int) using iceberg tblproperties ('format-version' = '3')",
        f"insert into volley.db.{name} values (1)",
    )
    ref = lake.config(name).ref
    evolution = SchemaEvolution(ref.load().schema()).add("l", "array<variant>").add("m", "map<string, variant>")
    evolution.add("s", "struct<v: variant>").add("later", "unknown").apply(ref)
    kinds = {"l": pa.list_(pa.string()), "m": pa.map_(pa.string(), pa.string()), "s": pa.struct({"v": pa.string()})}
    schema = pa.schema({"id": pa.int32(), **kinds})
    rows: list[dict[str, Any]] = [
        {"id": 1, "l": ["1", None], "m": [("k", '{"a":[1.5]}')], "s": {"v": "[true]"}},
        {"id": 2, "l": [], "m": [], "s": {"v": None}},
    ]
    write(lake, name, 0, rows, Upsert("id", strategy=strategy), schema)
    IcebergTable(ref).compact(rewrite_all=True)
    (found,) = spark_sql(
        lake,
        "select id, to_json(get(l, 0)) l, size(l) n, to_json(m['k']) m, to_json(s.v) s, later "
        f"from volley.db.{name} order by id",
    )
    assert found == [
        {"id": 1, "l": "1", "n": 2, "m": '{"a":[1.5]}', "s": "[true]", "later": None},
        {"id": 2, "l": None, "n": 0, "m": None, "s": None, "later": None},
    ]


def test_spark_reads_columns_without_values_row_by_row_alone(lake: Lake) -> None:
    """Its vectorized reader refuses the column, and reads the others."""
    name = "without_values"
    spark_sql(
        lake,
        f"create table volley.db.{name} (id int) using iceberg tblproperties ('format-version' = '3')",
        f"insert into volley.db.{name} values (1)",
    )
    ref = lake.config(name).ref
    SchemaEvolution(ref.load().schema()).add("later", "unknown").apply(ref)
    write(lake, name, 0, [{"id": 2}], None, pa.schema({"id": pa.int32()}))
    assert spark_sql(lake, f"select id from volley.db.{name} order by id") == [[{"id": 1}, {"id": 2}]]
    with pytest.raises(AssertionError, match=r"null|unknown|Unsupported"):
        spark_sql(lake, f"select id, later from volley.db.{name}")
    spark_sql(lake, f"alter table volley.db.{name} set tblproperties ('read.parquet.vectorization.enabled' = 'false')")
    (found,) = spark_sql(lake, f"select id, later from volley.db.{name} order by id")
    assert found == [{"id": 1, "later": None}, {"id": 2, "later": None}]
