"""Random histories of one table: Volley, Spark and pyiceberg change it in turn, beside a model of its rows and ids."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.types import StringType
from requests.exceptions import ConnectionError as Unreachable

from tests.drivers import Drivers
from tests.duck import query
from tests.services.readers import Lake, spark_sql
from tests.upserts.lake import do
from volley import CommitConflictError, Epoch, IcebergSink, IcebergSinkConfig, Metrics, SinkContext
from volley.iceberg import (
    Append,
    IcebergTable,
    Partitioning,
    SnapshotManager,
    Upsert,
    orphan_files,
    publish_branch,
    remove_orphan_files,
)
from volley.iceberg.commit.committer import IcebergCommitter
from volley.iceberg.modes import Strategy
from volley.task.failpoints import COMPACTION_POINTS, DELETE_POINTS, MANIFEST_POINTS

__all__ = ["History"]

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "op": pa.string()})
KEYS = 60
_MODES = ", ".join(f"'write.{command}.mode' = 'merge-on-read'" for command in ("delete", "update", "merge"))
_MAIN = "main"

Row = dict[str, Any]


@dataclass
class Branch:
    """What a branch has: the model's rows, and what readers saw after its last change."""

    rows: dict[int, str] = field(default_factory=dict)
    seen: dict[int, Row] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """What an action has done to a branch.

    Args:
        written: The keys whose rows it has written.
        keeps: True if a row that it updates keeps its id; an upsert may also add another row.
        old: True if rows may have ids that were given to them before, as by a rollback.
    """

    written: set[int] = field(default_factory=set)
    keeps: bool = False
    old: bool = False


def commit(config: IcebergSinkConfig, query_id: str, number: int, rows: list[Row], schema: pa.Schema) -> None:
    """Commit an epoch, unless the table has it."""
    driver = opened(config, schema)
    last = driver.last_epoch(query_id)
    if last is None or last < number:
        driver.commit(*written(driver, query_id, number, rows, schema))


def opened(config: IcebergSinkConfig, schema: pa.Schema) -> IcebergCommitter:
    driver = IcebergSink(config).open(SinkContext("job", schema, Metrics(), do))
    assert isinstance(driver, IcebergCommitter)
    return driver


def written(
    driver: IcebergCommitter, query_id: str, number: int, rows: list[Row], schema: pa.Schema
) -> tuple[Epoch, Any]:
    epoch = Epoch(query_id, number)
    task = driver.writer(epoch).open(0)
    task.write(pa.RecordBatch.from_pylist(rows, schema))
    return epoch, [task.close()]


def maintain(config: IcebergSinkConfig, action: str) -> None:
    """What Volley's maintenance does to a table, in a process that may be killed."""
    view = IcebergTable(config.ref)
    if action == "compact":
        view.compact(rewrite_all=True)
    elif action == "sort":
        view.compact(rewrite_all=True, sort_by=["name desc", "id"])
    elif action == "deletes":
        view.rewrite_position_deletes()
    else:
        view.rewrite_manifests()


_KILLS = {"compact": COMPACTION_POINTS, "deletes": DELETE_POINTS, "manifests": MANIFEST_POINTS}


class History:
    """A table, and what happens to it.

    Args:
        lake: Where it is.
        name: Its name.
        seed: Repeats the history, but for the names of files.
    """

    def __init__(self, lake: Lake, name: str, seed: int) -> None:
        self.lake, self.name, self.rng = lake, name, Random(seed)
        self.branches = {_MAIN: Branch()}
        self.happened = list[str]()
        self.step = 0
        self._spark_table = f"volley.db.{name}"
        self._ids_from = 0
        self._columns = 0
        self._partitioned = bool(seed % 2)
        self._upgraded = False

    def config(self, branch: str = _MAIN) -> IcebergSinkConfig:
        strategies: list[Strategy] = ["auto", "merge_on_read", "copy_on_write"]
        strategy = self.rng.choice(strategies)
        config = self.lake.config(self.name).with_commit_mode(Upsert(["id"], op_field="op", strategy=strategy))
        if self._partitioned:
            config = config.with_partitioning([Partitioning.bucket("id", n=2)])
        return config if branch == _MAIN else config.with_branch(branch)

    def run(self, steps: int, upgrade_at: int) -> None:
        """Change the table so often, and compare it with the model after each change."""
        self.check(_MAIN, self._upsert(_MAIN))
        self._sql(f"alter table {self._spark_table} set tblproperties ({_MODES}, 'write.wap.enabled' = 'true')")
        while self.step < steps:
            if self.step >= upgrade_at and not self._upgraded:
                self._upgrade()
                continue
            action, branch = self._choice()
            self.happened.append(f"{self.step} {branch} {action.__name__}")
            if (change := action(branch)) is not None:
                self.check(branch, change)
            if self.step % 20 == 0:
                self._check_files()

    def _choice(self) -> tuple[Callable[[str], Change | None], str]:
        actions: dict[Callable[[str], Change | None], int] = {
            **{self._upsert: 6, self._append: 2, self._killed_upsert: 1, self._conflict: 2, self._unanswered: 1},
            **{self._spark_delete: 3, self._spark_update: 3, self._spark_merge: 3, self._spark_insert: 2},
            **{self._maintain: 4, self._killed_maintenance: 2, self._spark_maintain: 3},
            **{self._new_branch: 2, self._publish: 2, self._rollback: 1, self._expire: 1, self._drop_branch: 1},
            **{self._staged: 2, self._by_pyiceberg: 1},
        }
        action = self.rng.choices(list(actions), list(actions.values()))[0]
        return action, self.rng.choice([_MAIN, *self.branches])

    # --- what happens

    def _keys(self) -> list[int]:
        return self.rng.sample(range(KEYS), self.rng.choice([1, 3, 15]))

    def _sent(self) -> list[Row]:
        return [{"id": key, "name": f"v{self.step}", "op": self.rng.choice("uuud")} for key in self._keys()]

    def _took(self, branch: str, rows: list[Row]) -> Change:
        """The model with the rows of an epoch of upserts."""
        model = self.branches[branch].rows
        for row in rows:
            model.pop(row["id"], None)
            if row["op"] != "d":
                model[row["id"]] = row["name"]
        return Change({row["id"] for row in rows})

    def _epoch(self, branch: str) -> tuple[str, int]:
        self.step += 1
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.name} {branch}")), self.step

    def _upsert(self, branch: str) -> Change:
        rows = self._sent()
        commit(self.config(branch), *self._epoch(branch), rows, SCHEMA)
        return self._took(branch, rows)

    def _killed_upsert(self, branch: str) -> Change:
        rows, epoch, config = self._sent(), self._epoch(branch), self.config(branch)
        point = f"{self.rng.choice(['before-commit', 'after-commit'])}@{epoch[1]}"
        assert Drivers().run(commit, config, *epoch, rows, SCHEMA, failpoint=point) == -signal.SIGKILL
        commit(config, *epoch, rows, SCHEMA)
        return self._took(branch, rows)

    def _append(self, branch: str) -> Change | None:
        new = [key for key in self._keys() if key not in self.branches[branch].rows]
        if not new:
            return None
        rows = [{"id": key, "name": f"a{self.step}", "op": "u"} for key in new]
        appends = self.config(branch).with_commit_mode(Append())
        query_id, number = self._epoch(f"{branch} appends")
        plain = [{name: row[name] for name in ("id", "name")} for row in rows]
        commit(appends, query_id, number, plain, SCHEMA.remove(2))
        return self._took(branch, rows)

    def _conflict(self, branch: str) -> Change:
        """Another writer, on whatever branch, is faster."""
        other = self.rng.choice([*self.branches])
        by_other = self.rng.choice([self._spark_delete, self._spark_update, self._spark_insert, self._maintain])
        rows, epoch = self._sent(), self._epoch(branch)
        driver = opened(self.config(branch), SCHEMA)
        driver.last_epoch(epoch[0])
        files = written(driver, *epoch, rows, SCHEMA)
        real, others = driver._catalog.commit_table, [by_other]

        def commit_table(*arguments: Any) -> Any:
            if others and (change := others.pop()(other)) is not None:
                self.check(other, change)
            return real(*arguments)

        with patch.object(driver._catalog, "commit_table", commit_table):
            driver.commit(*files)
        return self._took(branch, rows)

    def _unanswered(self, branch: str) -> Change:
        """The first commit lands, or not, and its answer is lost."""
        lands = self.rng.random() < 0.5
        rows, epoch = self._sent(), self._epoch(branch)
        driver = opened(self.config(branch), SCHEMA)
        driver.last_epoch(epoch[0])
        files = written(driver, *epoch, rows, SCHEMA)
        real, lost = driver._catalog.commit_table, [True]

        def commit_table(*arguments: Any) -> Any:
            if not lost:
                return real(*arguments)
            lost.clear()
            if lands:
                real(*arguments)
            raise Unreachable("injected: connection reset")

        with patch.object(driver._catalog, "commit_table", commit_table):
            driver.commit(*files)
        return self._took(branch, rows)

    def _at(self, branch: str) -> str:
        return self._spark_table + ("" if branch == _MAIN else f".branch_{branch}")

    def _sql(self, *statements: str) -> list[list[Row]]:
        return spark_sql(self.lake, *statements)

    def _spark_delete(self, branch: str) -> Change:
        self.step += 1
        keys, model = self._keys(), self.branches[branch].rows
        self._sql(f"delete from {self._at(branch)} where id in ({', '.join(map(str, keys))})")
        for key in keys:
            model.pop(key, None)
        return Change({*keys})

    def _spark_update(self, branch: str) -> Change:
        self.step += 1
        model, name = self.branches[branch].rows, f"s{self.step}"
        keys = [key for key in self._keys() if key in model]
        listed = ", ".join(map(str, [-1, *keys]))
        self._sql(f"update {self._at(branch)} set name = '{name}' where id in ({listed})")
        model |= dict.fromkeys(keys, name)
        return Change({*keys}, keeps=True)

    def _spark_merge(self, branch: str) -> Change:
        self.step += 1
        model, name, keys = self.branches[branch].rows, f"m{self.step}", self._keys()
        gone = {key for key in keys if self.rng.random() < 0.3}
        values = ", ".join(f"({key}, {'true' if key in gone else 'false'})" for key in keys)
        self._sql(
            f"merge into {self._at(branch)} t using (select * from values {values} as v(id, gone)) s on t.id = s.id "
            f"when matched and s.gone then delete when matched then update set name = '{name}' "
            f"when not matched and not s.gone then insert (id, name) values (s.id, '{name}')"
        )
        for key in keys:
            model[key] = name
            if key in gone:
                del model[key]
        return Change({*keys}, keeps=True)

    def _spark_insert(self, branch: str) -> Change | None:
        model = self.branches[branch].rows
        new = [key for key in self._keys() if key not in model]
        if not new:
            return None
        self.step += 1
        name = f"i{self.step}"
        values = ", ".join(f"({key}, '{name}')" for key in new)
        self._sql(f"insert into {self._at(branch)} (id, name) values {values}")
        model |= dict.fromkeys(new, name)
        return Change({*new})

    def _maintain(self, branch: str) -> Change:
        self.step += 1
        maintain(self.config(branch), self.rng.choice(["compact", "sort", "deletes", "manifests"]))
        return Change()

    def _killed_maintenance(self, branch: str) -> Change:
        """It may have nothing to do, and end before it comes to the point."""
        self.step += 1
        action = self.rng.choice([*_KILLS])
        point = f"{self.rng.choice(_KILLS[action])}@0"
        assert Drivers().run(maintain, self.config(branch), action, failpoint=point) in (0, -signal.SIGKILL)
        return Change()

    def _spark_maintain(self, branch: str) -> Change | None:
        """Spark's procedures change main alone."""
        if branch != _MAIN:
            return None
        self.step += 1
        table = f"table => 'db.{self.name}'"
        all_files = "options => map('rewrite-all', 'true')"
        calls = [
            f"rewrite_data_files({table}, {all_files})",
            f"rewrite_data_files({table}, strategy => 'sort', sort_order => 'name desc', {all_files})",
            f"rewrite_manifests({table})",
            f"rewrite_position_delete_files({table}, {all_files})",
        ]
        self._sql(f"call volley.system.{self.rng.choice(calls)}")
        return Change()

    def _staged(self, branch: str) -> Change | None:
        """Spark stages rows, which others overtake or not, and publishes them then: write, audit, publish."""
        name, model = f"w{self.step}", self.branches[_MAIN].rows
        new = [key for key in self._keys() if key not in model]
        if branch != _MAIN or not new:
            return None
        self.step += 1
        values = ", ".join(f"({key}, '{name}')" for key in new)
        insert = f"insert into {self._spark_table} (id, name) values {values}"
        self._sql(f"set spark.wap.id = {name}", insert)
        self.check(_MAIN, Change())
        others = [row for row in self._sent() if row["id"] not in new]
        if others and self.rng.random() < 0.7:
            commit(self.config(), *self._epoch(_MAIN), others, SCHEMA)
            self.check(_MAIN, self._took(_MAIN, others))
        self._sql(f"call volley.system.publish_changes('db.{self.name}', '{name}')")
        model |= dict.fromkeys(new, name)
        return Change({*new}, old=True)

    def _new_branch(self, branch: str) -> Change | None:
        if len(self.branches) > 3:
            return None
        self.step += 1
        new, start = f"b{self.step}", self.branches[branch]
        SnapshotManager(self.config(branch).ref).create_branch(new)
        self.branches[new] = Branch({**start.rows}, {**start.seen})
        return Change()

    def _drop_branch(self, branch: str) -> Change | None:
        if branch == _MAIN:
            return None
        SnapshotManager(self.config().ref).drop_branch(branch)
        del self.branches[branch]
        return None

    def _publish(self, branch: str) -> Change | None:
        if branch == _MAIN:
            return None
        self.step += 1
        before = self._table().metadata.snapshot_by_name(_MAIN)
        try:
            head = publish_branch(self.config(branch).ref)
        except CommitConflictError:
            assert self._table().metadata.snapshot_by_name(_MAIN) == before
        else:
            now = self._table().metadata.snapshot_by_name(_MAIN)
            assert now is not None
            assert now.snapshot_id == head
            published = self.branches[branch]
            self.branches[_MAIN] = Branch({**published.rows}, {**published.seen})
            self.check(_MAIN, Change())
        return Change()

    def _rollback(self, branch: str) -> Change | None:
        """Go back by a snapshot, whose rows are those that Spark reads in it."""
        metadata = self._table().metadata
        head = metadata.snapshot_by_name(branch)
        parent = metadata.snapshot_by_id(head.parent_snapshot_id) if head and head.parent_snapshot_id else None
        if (
            branch != _MAIN
            or parent is None
            or parent.snapshot_id not in {entry.snapshot_id for entry in metadata.snapshot_log}
        ):
            return None
        self.step += 1
        rows = self._by_spark(parent.snapshot_id)
        SnapshotManager(self.config(branch).ref).rollback_to(parent.snapshot_id)
        self.branches[branch] = Branch({row["id"]: row["name"] for row in rows}, {row["id"]: row for row in rows})
        return Change()

    def _expire(self, branch: str) -> Change:
        self.step += 1
        SnapshotManager(self.config().ref).expire_snapshots("0s", retain_last=self.rng.choice([1, 3]))
        return Change()

    def _by_pyiceberg(self, branch: str) -> Change | None:
        """pyiceberg writes rows before version 3 only, and not into buckets; it changes the metadata in any case."""
        table, model = self._table(), self.branches[branch].rows
        new = [key for key in self._keys() if key not in model]
        if self._upgraded or self._partitioned or not new:
            if self._columns == 3:
                return None
            self._columns += 1
            with table.update_schema() as update:
                update.add_column(f"more_{self._columns}", StringType())
            return Change()
        self.step += 1
        rows = pa.Table.from_pylist([{"id": key, "name": f"p{self.step}"} for key in new], SCHEMA.remove(2))
        table.append(rows, branch=branch)
        model |= dict.fromkeys(new, f"p{self.step}")
        return Change({*new})

    def _upgrade(self) -> None:
        self._upgraded = True
        if self.rng.random() < 0.5:
            assert IcebergTable(self.config().ref).upgrade(3) == 2
        else:
            self._sql(f"alter table {self._spark_table} set tblproperties ('format-version' = '3')")
        for branch in self.branches:
            self.check(branch, Change())

    # --- what readers see

    def _table(self) -> Table:
        return self.lake.table(self.name)

    def _by_spark(self, snapshot_id: int) -> list[Row]:
        columns = "id, name, _row_id, _last_updated_sequence_number changed" if self._upgraded else "id, name"
        (rows,) = self._sql(f"select {columns} from {self._spark_table} version as of {snapshot_id} order by id")
        return rows

    def _by_duckdb(self, table: Table, snapshot_id: int) -> list[Row]:
        columns = "id, name, _row_id, _last_updated_sequence_number changed" if self._upgraded else "id, name"
        scan = f"iceberg_scan('{table.metadata_location}', snapshot_from_id = {snapshot_id})"
        rows: list[Row] = query(f"select {columns} from {scan} order by id").to_arrow_table().to_pylist()
        # DuckDB has a number for rows that have no id yet; the specification says that there is none.
        return [row | {"changed": None} if row.get("_row_id", 0) is None else row for row in rows]

    def check(self, branch: str, change: Change) -> None:
        """Compare a branch with the model: its rows and ids, as four readers see them."""
        table, state = self._table(), self.branches[branch]
        where = self.happened[-5:], branch, change
        head = table.metadata.snapshot_by_name(branch)
        assert head is not None
        rows = self._by_spark(head.snapshot_id)
        assert {row["id"]: row["name"] for row in rows} == state.rows, where
        assert len(rows) == len(state.rows), where
        assert self._by_duckdb(table, head.snapshot_id) == rows, where
        plain = [{"id": row["id"], "name": row["name"]} for row in rows]
        by_pyiceberg = table.scan(snapshot_id=head.snapshot_id, selected_fields=("id", "name")).to_arrow()
        assert by_pyiceberg.sort_by("id").to_pylist() == plain, where
        ours = IcebergTable(self.config(branch)).rows.select("id", "name").to_arrow()
        assert ours.sort_by("id").to_pylist() == plain, where
        if isinstance(table.metadata, TableMetadataV3):
            _check_snapshots(table.metadata)
            self._check_ids(state, rows, head, change, where)
            self._ids_from = table.metadata.next_row_id or 0
        state.seen = {row["id"]: row for row in rows}

    def _check_ids(self, state: Branch, rows: list[Row], head: Any, change: Change, where: Any) -> None:
        if head.first_row_id is None:
            assert all(row["_row_id"] is None for row in rows), where
            return
        known = {row["_row_id"]: key for key, row in state.seen.items() if row.get("_row_id") is not None}
        assert len({row["_row_id"] for row in rows}) == len(rows), where
        for row in rows:
            key, row_id, before = row["id"], row["_row_id"], state.seen.get(row["id"], {})
            had = before.get("_row_id")
            assert row_id is not None, where
            is_kept = had is not None and (key not in change.written or change.keeps)
            if is_kept:
                assert row_id == had, (where, row, before)
            elif row_id != had:
                assert known.get(row_id) is None, (where, row, before)
                assert change.old or row_id >= self._ids_from, (where, row, before)
            if had is not None and key not in change.written:
                assert row["changed"] == before["changed"], (where, row, before)
            elif key in change.written and not change.old:
                assert row["changed"] == head.sequence_number, (where, row, before)

    def _check_files(self) -> None:
        """Remove orphans: what readers need stays, and nothing else."""
        remove_orphan_files(self.config(), 0)
        assert orphan_files(self.config(), 0) == []
        for branch in self.branches:
            self.check(branch, Change())


def _check_snapshots(metadata: TableMetadataV3) -> None:
    """Check that no two snapshots have given the same id."""
    given = sorted(_given(metadata))
    for (_, end), (start, _) in pairwise(given):
        assert end <= start, given
    assert not given or given[-1][1] <= (metadata.next_row_id or 0)


def _given(metadata: TableMetadataV3) -> Iterator[tuple[int, int]]:
    for snapshot in metadata.snapshots:
        if snapshot.first_row_id is not None and snapshot.added_rows:
            yield snapshot.first_row_id, snapshot.first_row_id + snapshot.added_rows
