"""Changes of tables that the Spark runtime of Iceberg has written, and its changelog view of copy-on-write tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.servers.iceberg_spark import IcebergSpark
from tests.services.readers import Lake, spark_sql
from volley.iceberg import changes_between

TWINS = {"cow": (2, "copy-on-write"), "mor": (2, "merge-on-read"), "vectors": (3, "merge-on-read")}
STATEMENTS = [
    "insert into {0} select -1, 'a', 1.0, array(1), null from range(3)",
    "update {0} set value = 2 where id = -1",
    "delete from {0} where id = -1",
    "insert into {0} select id, if(id % 2 = 0, 'a', 'b'), id * 0.5, array(id, null), named_struct('x', id) "
    "from range(100)",
    "insert into {0} values (100, 'a', double('NaN'), null, null), (101, 'b', null, array(), named_struct('x', null))",
    "update {0} set value = value + 1 where id % 10 = 3",
    "delete from {0} where id in (5, 6, 101)",
    "merge into {0} t using (select id + 90 id from range(20)) s on t.id = s.id "
    "when matched and s.id = 95 then delete when matched then update set value = -1, tags = null "
    "when not matched then insert (id, part, value) values (s.id, 'c', 9)",
    # A row that moves to another partition.
    "update {0} set part = 'd' where id = 10",
    "call volley.system.rewrite_data_files(table => '{1}', options => map('rewrite-all', 'true'))",
    "alter table {0} add column more bigint",
    "alter table {0} rename column value to renamed",
    "update {0} set more = id, renamed = 0 where id < 4",
    "delete from {0} where part = 'c'",
    "insert overwrite {0} select id, 'e', renamed, tags, place, more from {0} where part = 'a' and id < 50",
    "delete from {0} where id > 40",
    "delete from {0} where true",
]
COLUMNS = ("id", "part", "renamed", "tags", "place", "more")
SPARK_NAMES = {"DELETE": "delete", "INSERT": "insert", "UPDATE_BEFORE": "update_before", "UPDATE_AFTER": "update_after"}
# Until here keys are not unique, which the runtime does not allow.
UNIQUE = 3
KEYS: list[Sequence[str]] = [(), ("id",)]
Told = list[Counter[str]]


@pytest.fixture(scope="module", params=["", "partitioned by (part)"], ids=["one partition", "partitions"])
def lake(request: pytest.FixtureRequest, iceberg_spark: IcebergSpark, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Three tables with the same history, written in different ways."""
    lake = Lake(tmp_path_factory.mktemp("lake"), iceberg_spark)
    lake.catalog().create_namespace("db")
    for name, (version, mode) in TWINS.items():
        modes = ", ".join(f"'write.{command}.mode' = '{mode}'" for command in ("delete", "update", "merge"))
        create = (
            f"create table volley.db.{name} (id bigint, part string, value double, tags array<bigint>, "
            f"place struct<x: bigint>) using iceberg {request.param} location 'file://{lake.folder}/db/{name}' "
            f"tblproperties ('format-version' = '{version}', {modes})"
        )
        spark_sql(lake, create, *(each.format(f"volley.db.{name}", f"db.{name}") for each in STATEMENTS))
    return lake


def start_of(lake: Lake, table: str, keys: Sequence[str]) -> int | None:
    return lake.table(table).snapshots()[UNIQUE - 1].snapshot_id if keys else None


def by_spark(lake: Lake, table: str, keys: Sequence[str]) -> Told:
    """The changes of each snapshot, by the runtime's changelog view."""
    start = start_of(lake, table, keys)
    arguments = {
        "table": f"'db.{table}'",
        "changelog_view": "'changes'",
        **({"identifier_columns": f"array({', '.join(map(repr, keys))})"} if keys else {}),
        **({"options": f"map('start-snapshot-id', '{start}')"} if start is not None else {}),
    }
    named = ", ".join(f"{name} => {value}" for name, value in arguments.items())
    _, rows = spark_sql(lake, f"call volley.system.create_changelog_view({named})", "select * from changes")
    changes = [(row["_commit_snapshot_id"], SPARK_NAMES[row["_change_type"]], row) for row in rows]
    return by_snapshot(lake, table, changes)


def by_volley(lake: Lake, table: str, keys: Sequence[str]) -> Told:
    changes = changes_between(lake.config(table).ref, start_of(lake, table, keys), keys=keys)
    found = changes.to_arrow().to_pylist()
    return by_snapshot(lake, table, [(row["_snapshot"], row["_change"], row) for row in found])


def by_snapshot(lake: Lake, table: str, changes: list[tuple[int, str, dict[str, Any]]]) -> Told:
    snapshots = lake.table(table).snapshots()
    told: dict[int, Counter[str]] = {snapshot.snapshot_id: Counter() for snapshot in snapshots}
    for snapshot, kind, row in changes:
        told[snapshot][f"{kind} {[row[column] for column in COLUMNS]}"] += 1
    return [told[snapshot.snapshot_id] for snapshot in snapshots]


@pytest.mark.parametrize("keys", KEYS, ids=["plain", "keyed"])
def test_changes_are_those_of_sparks_changelog_view(lake: Lake, keys: Sequence[str]) -> None:
    found = by_volley(lake, "cow", keys)
    assert sum(map(len, found)) > 200
    assert found == by_spark(lake, "cow", keys)


@pytest.mark.parametrize(("table", "keys"), [("mor", ()), ("mor", ("id",)), ("vectors", ("id",))])
def test_merge_on_read_twins_have_the_same_changes(lake: Lake, table: str, keys: Sequence[str]) -> None:
    assert by_volley(lake, table, keys) == by_volley(lake, "cow", keys)


def test_rows_that_keep_their_ids_are_updates_without_keys(lake: Lake) -> None:
    found = by_volley(lake, "vectors", ())
    updates = [sum(count for change, count in told.items() if change.startswith("update_")) for told in found]
    assert updates[1] == 6
    assert sum(updates) > 20
    assert [unpaired(told) for told in found] == by_volley(lake, "cow", ())


def unpaired(told: Counter[str]) -> Counter[str]:
    """The changes with each update as a deletion and an insert."""
    kinds = {"update_before": "delete", "update_after": "insert"}
    plain: Counter[str] = Counter()
    for change, count in told.items():
        kind, row = change.split(" ", 1)
        plain[f"{kinds.get(kind, kind)} {row}"] += count
    return plain
