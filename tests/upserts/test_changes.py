"""The changes of each snapshot are exactly the difference of the table's rows before and after, as others read them."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from tests.tiers import examples, some
from tests.upserts.conftest import MakeLake
from tests.upserts.lake import Lake
from volley.iceberg import (
    Append,
    Changes,
    Delete,
    Insert,
    Partitioning,
    Update,
    Upsert,
    changes_between,
)
from volley.iceberg.modes import Strategy

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.float64(), "tags": pa.list_(pa.int64())})
Row = dict[str, Any]
Rows = Counter[str]


def frozen(row: Row) -> str:
    return repr(sorted(row.items()))


def rows_at(table: Table, snapshot_id: int | None) -> Rows:
    """The rows as pyiceberg reads them, under the names of the current schema."""
    if snapshot_id is None:
        return Counter()
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    assert snapshot.schema_id is not None
    then = table.schemas()[snapshot.schema_id]
    found = table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    names = {field.field_id: field.name for field in then.fields}
    columns = {field.name: names.get(field.field_id) for field in table.schema().fields}
    return Counter(frozen({new: row[old] if old else None for new, old in columns.items()}) for row in found)


def sides(changes: Changes) -> tuple[Rows, Rows, list[tuple[Row, Row]]]:
    """Deleted and inserted rows, updates as one of each; the updates."""
    removed, added, updates = Counter[str](), Counter[str](), []
    for change in changes:
        match change:
            case Insert(row):
                added[frozen(row)] += 1
            case Delete(row):
                removed[frozen(row)] += 1
            case Update(before, after):
                removed[frozen(before)] += 1
                added[frozen(after)] += 1
                updates.append((before, after))
    return removed, added, updates


def check_every_snapshot(lake: Lake, keys: Sequence[str] = ()) -> None:
    """Compare the changes of each snapshot with the rows before and after it."""
    table = lake.table()
    before: int | None = None
    for snapshot in table.snapshots():
        after = snapshot.snapshot_id
        changes = changes_between(lake.config.ref, before, after, keys)
        removed, added, updates = sides(changes)
        was, now = rows_at(table, before), rows_at(table, after)
        assert (removed, added) == (was - now, now - was)
        assert all(old[key] == new[key] for old, new in updates for key in keys)
        found = changes.to_arrow()
        assert found.schema == changes.schema
        assert set(found["_snapshot"].to_pylist()) <= {after}
        assert {int(at.timestamp() * 1000) for at in found["_committed_at"].to_pylist()} <= {snapshot.timestamp_ms}
        if keys:
            gone, new = (
                {tuple(each.row[key] for key in keys) for each in changes if isinstance(each, side)}
                for side in (Delete, Insert)
            )
            assert not gone & new
        before = after


def compact(table: Table) -> None:
    """Write all rows to new files, as other engines' compactions do."""
    rows = table.scan().to_arrow()
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
        summarize = snapshot._summary
        replace = {"operation": Operation.REPLACE}
        snapshot.__dict__["_summary"] = lambda properties: summarize(properties).model_copy(update=replace)
        for task in table.scan().plan_files():
            snapshot.delete_data_file(task.file)
        # pyiceberg divides by the number of rows.
        for file in _dataframe_to_data_files(table.metadata, rows, table.io) if len(rows) else ():
            snapshot.append_data_file(file)


class Model:
    """What may happen to a table.

    Args:
        lake: The table.
    """

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.value = "value"
        self.upsert("merge_on_read", [{"id": 0, "part": "a", "value": 0.0, "tags": None}], [])

    def upsert(self, strategy: str, rows: list[Row], deleted: list[int]) -> None:
        part = self.lake.table().spec().fields and ["part"] if self.lake._next else []
        mode = Upsert(["id", *part], op_field="op", strategy=cast(Strategy, strategy))
        self.lake.config = self.lake.config.with_commit_mode(mode)
        fields = [field.with_name(self.value) if field.name == "value" else field for field in SCHEMA]
        self.lake.schema = pa.schema([*fields, ("op", pa.string())])
        named = [{self.value if name == "value" else name: each for name, each in row.items()} for row in rows]
        self.lake.epoch(
            [{**row, "op": "u"} for row in named],
            [{"id": number, "part": part, "op": "d"} for number in deleted for part in ("a", "b")],
        )

    def _arrow(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, SCHEMA).rename_columns(
            [self.value if name == "value" else name for name in SCHEMA.names]
        )

    def append(self, rows: list[Row]) -> None:
        self.lake.table().append(self._arrow(rows))

    def overwrite(self, part: str, rows: list[Row]) -> None:
        self.lake.table().overwrite(self._arrow([{**row, "part": part} for row in rows]), f"part == '{part}'")

    def delete(self, number: int) -> None:
        self.lake.table().delete(f"id == {number}")

    def compact(self) -> None:
        compact(self.lake.table())

    def add(self, name: str) -> None:
        table = self.lake.table()
        if name not in table.schema().column_names:
            with table.update_schema() as update:
                update.add_column(name, table.schema().find_type("id"))

    def rename(self, name: str) -> None:
        with self.lake.table().update_schema() as update:
            update.rename_column(self.value, name)
        self.value = name


IDS = st.integers(0, 6)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": IDS,
            "part": st.sampled_from(["a", "b"]),
            "value": st.sampled_from([None, 0.0, -0.0, float("nan"), 1.5]),
            "tags": st.sampled_from([None, [], [None], [1], [1, 2]]),
        }
    ),
    min_size=1,
    max_size=6,
)
STRATEGIES = st.sampled_from(["merge_on_read", "merge_on_read", "copy_on_write"])
ACTIONS = st.one_of(
    st.tuples(st.just("upsert"), STRATEGIES, ROWS, st.lists(IDS, max_size=2)),
    st.tuples(st.just("upsert"), STRATEGIES, ROWS, st.lists(IDS, max_size=2)),
    st.tuples(st.just("append"), ROWS),
    st.tuples(st.just("overwrite"), st.sampled_from(["a", "b"]), ROWS),
    st.tuples(st.just("delete"), IDS),
    st.tuples(st.just("compact")),
    st.tuples(st.just("add"), st.sampled_from(["more", "again"])),
    st.tuples(st.just("rename"), st.sampled_from(["renamed", "other"])),
)


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize("partitioned", some([False, True]), ids=["one partition", "partitions"])
@settings(max_examples=examples(0.2), phases=[Phase.explicit, Phase.generate])
@given(actions=st.lists(ACTIONS, min_size=2, max_size=8), keys=st.sampled_from([(), ("id",), ("part", "id")]))
def test_changes_are_the_difference_of_the_rows(
    partitioned: bool, actions: list[tuple[Any, ...]], keys: tuple[str, ...]
) -> None:
    with tempfile.TemporaryDirectory() as folder, closing(Lake(Path(folder), Append(), SCHEMA)) as lake:
        if partitioned:
            lake.config = lake.config.with_partitioning(Partitioning.identity("part"))
        model = Model(lake)
        for name, *arguments in actions:
            if name == "rename" and arguments[0] == model.value:
                continue
            getattr(model, name)(*arguments)
        check_every_snapshot(lake, keys)
        (last,) = [lake.table().current_snapshot()]
        assert last is not None
        assert rows_at(lake.table(), last.snapshot_id) == Counter(map(frozen, lake.duckdb_rows()))


@pytest.mark.parametrize("strategy", ["merge_on_read", "copy_on_write"])
def test_changes_into_an_upsert_keep_a_copy(strategy: Strategy, make_lake: MakeLake) -> None:
    fields = pa.schema({"id": pa.int64(), "value": pa.int64()})
    lake = make_lake(Upsert("id", op_field="op", strategy=strategy), fields.append(pa.field("op", pa.string())))
    copy = make_lake(Upsert("id", op_field="_change"), fields.append(pa.field("_change", pa.string())))
    numbers = random.Random(7)
    last = None
    for epoch in range(8):
        written = numbers.sample(range(60), 15)
        lake.epoch([{"id": each, "value": epoch, "op": numbers.choice("uud")} for each in written])
        changes = changes_between(lake.config.ref, last, keys="id")
        last = changes.end
        copy.epoch(changes.to_arrow().select([*fields.names, "_change"]).to_pylist())
        assert copy.rows() == lake.rows()
