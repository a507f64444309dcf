"""Tables of format version 3 that Spark, with Iceberg's own runtime, and Volley change in turn."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.servers.iceberg_spark import IcebergSpark
from tests.services.readers import Lake, by_duckdb, spark_sql
from tests.upserts.lake import do
from volley import Epoch, IcebergSink, Metrics, SchemaEvolution, SinkContext
from volley.iceberg import IcebergTable, Upsert
from volley.iceberg.modes import Strategy

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "op": pa.string()})
QUERY = "2b6f8a5e-0000-0000-0000-000000000000"


@pytest.fixture(scope="module")
def lake(iceberg_spark: IcebergSpark, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("lake"), iceberg_spark)


def upsert(lake: Lake, name: str, strategy: Strategy, number: int, rows: list[dict[str, Any]]) -> None:
    config = lake.config(name).with_table_properties({"format-version": "3"})
    mode = Upsert(["id"], op_field="op", strategy=strategy)
    committer = IcebergSink(config.with_commit_mode(mode)).open(SinkContext("job", SCHEMA, Metrics(), do))
    epoch = Epoch(QUERY, number)
    writer = committer.writer(epoch).open(0)
    writer.write(pa.RecordBatch.from_pylist(rows, SCHEMA))
    committer.commit(epoch, [writer.close()])


def seen(lake: Lake, name: str) -> list[dict[str, Any]]:
    """By Spark: each row, its id, and when it was changed."""
    columns = "id, name, _row_id, _last_updated_sequence_number changed"
    (rows,) = spark_sql(lake, f"select {columns} from volley.db.{name} order by id")
    return rows


@pytest.mark.parametrize("strategy", ["merge_on_read", "copy_on_write", "auto"])
def test_both_change_a_table_in_turn(strategy: Strategy, lake: Lake) -> None:
    rng, name, model = Random(strategy), f"turns_{strategy}", dict[int, str]()
    table, modes = (
        f"volley.db.{name}",
        ", ".join(f"'write.{command}.mode' = 'merge-on-read'" for command in ("delete", "update", "merge")),
    )
    view = IcebergTable(lake.config(name).ref)
    before, owners = dict[int, dict[str, Any]](), dict[int, int]()
    for step in range(14):
        actions = ["upsert", "upsert", "delete", "update", "insert", "compact", "manifests", "rewrite"]
        action = rng.choice(actions) if step else "upsert"
        changed = {rng.randrange(30) for _ in range(rng.choice([3, 15]))}
        listed = ", ".join(map(str, changed))
        if action == "upsert":
            sent: list[dict[str, Any]] = [{"id": key, "name": f"v{step}", "op": rng.choice("uuud")} for key in changed]
            upsert(lake, name, strategy, step, sent)
            model = {key: value for key, value in model.items() if key not in changed}
            model |= {row["id"]: row["name"] for row in sent if row["op"] != "d"}
            changed = {row["id"] for row in sent if row["op"] == "d"}
            if step == 0:
                spark_sql(lake, f"alter table {table} set tblproperties ({modes})")
        elif action == "delete":
            spark_sql(lake, f"delete from {table} where id in ({listed})")
            model = {key: value for key, value in model.items() if key not in changed}
        elif action == "update":
            spark_sql(lake, f"update {table} set name = 's{step}' where id in ({listed})")
            model |= dict.fromkeys(changed & model.keys(), f"s{step}")
            changed = set()
        elif action == "insert":
            spark_sql(lake, f"insert into {table} values ({100 + step}, 'i')")
            model[100 + step] = "i"
        elif action == "compact":
            view.compact(rewrite_all=True)
        elif action == "manifests":
            view.rewrite_manifests()
        else:
            spark_sql(
                lake,
                f"call volley.system.rewrite_data_files(table => 'db.{name}', options => map('rewrite-all', 'true'))",
            )
        if action in ("compact", "manifests", "rewrite", "insert"):
            changed = set()
        rows = seen(lake, name)
        assert {row["id"]: row["name"] for row in rows} == model, action
        assert len(rows) == len(model)
        plain = sorted(by_duckdb(lake, name), key=lambda row: row["id"])
        assert plain == [{"id": row["id"], "name": row["name"]} for row in rows]
        now = {row["id"]: row for row in rows}
        for key in now.keys() & before.keys() - changed:
            assert now[key]["_row_id"] == before[key]["_row_id"], (action, key)
            is_same = now[key]["name"] == before[key]["name"]
            assert is_same == (now[key]["changed"] == before[key]["changed"]), (action, key)
        assert all(owners.setdefault(row["_row_id"], row["id"]) == row["id"] for row in rows)
        before = now


def test_defaults_are_one_for_all_readers(lake: Lake) -> None:
    """Rows older than the column, rows of a stream without it, and rows that Spark adds without it."""
    upsert(lake, "defaults", "merge_on_read", 0, [{"id": 1, "name": "a", "op": "u"}])
    ref = lake.config("defaults").ref
    evolution = SchemaEvolution(ref.load().schema()).add("c", "int", default=5, required=True)
    evolution.add("day", "date", default=date(2024, 2, 29)).add("price", "decimal(9,2)", default=Decimal("1.50")).apply(
        ref
    )
    upsert(lake, "defaults", "merge_on_read", 1, [{"id": 2, "name": "b", "op": "u"}])
    spark_sql(lake, "insert into volley.db.defaults (id, name) values (3, 'c')")
    IcebergTable(ref).compact(rewrite_all=True)
    default = {"c": 5, "day": "2024-02-29", "price": "1.50"}
    expected = [{"id": number, "name": name, **default} for number, name in enumerate("abc", 1)]
    columns = "id, name, c, string(day) day, string(price) price"
    (by_spark,) = spark_sql(lake, f"select {columns} from volley.db.defaults order by id")
    assert by_spark == expected
    for rows in (IcebergTable(ref).to_arrow().to_pylist(), by_duckdb(lake, "defaults")):
        texts = [row | {"day": str(row["day"]), "price": str(row["price"])} for row in rows]
        assert sorted(texts, key=lambda row: row["id"]) == expected
