"""Chaos of erasures: a process that erases rows, or deletes old ones, dies; then no byte of them is in the lake."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests import maintenance
from tests.drivers import Drivers
from tests.iceberg.test_erasure import guilty
from tests.upserts.lake import Lake
from volley.columns.letters import SCHEMA as LETTERS
from volley.iceberg import IcebergTable, SnapshotManager, TableRef, Upsert
from volley.iceberg.storage import files as storage_files
from volley.task.failpoints import ERASURE_POINTS, EXPIRY_POINTS, ROW_TTL_POINT

__all__ = ["forget", "run"]

SCHEMA = pa.schema(
    {"id": pa.string(), "seq": pa.int64(), "at": pa.timestamp("us", "UTC"), "text": pa.string(), "op": pa.string()}
)
_COLUMNS = ("id", "seq", "at", "text")
_PEOPLE = range(80)
_ROWS = 25
_BRANCHES = 3
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_AT_RANDOM = "at random"
_SECONDS = (0.1, 1.5)
_TIMEOUT = 240
_UNCOMPRESSED = {"write.parquet.compression-codec": "uncompressed"}

Row = dict[str, Any]


def forget(ref: TableRef, ids: Sequence[str], letters: TableRef) -> None:
    """Erase the rows of some people, and delete one file after the other."""
    storage_files._THREADS = 1
    _erase(ref, ids, letters)


def _erase(ref: TableRef, ids: Sequence[str], letters: TableRef) -> None:
    erasure = IcebergTable(ref).erase([{"id": id} for id in ids], letters=[letters], orphans_older_than="0s")
    assert erasure.is_complete


class _People:
    """A table of people, its branches, its dead letters, and what they must have."""

    def __init__(self, folder: Path, dice: random.Random, version: str) -> None:
        self._dice = dice
        properties = {**_UNCOMPRESSED, "format-version": version, "write.summary.partition-limit": "100"}
        self.lake = Lake(folder, Upsert("id", sequence="seq", op_field="op"), SCHEMA, **properties)
        self.branches: dict[str, dict[str, Row]] = {"main": {}}
        self.forgotten: list[str] = []
        self._letters: list[str] = []
        self._seq = self._made = 0
        self.live = [self._new() for _ in _PEOPLE]
        self.epoch()
        self.lake.config.ref.load_catalog().create_table("db.letters", LETTERS, properties=_UNCOMPRESSED)
        self.letters = self.lake.config.ref.beside("letters")

    def _new(self) -> str:
        self._made += 1
        # Longer than the bounds of texts, which are cut.
        return f"person-with-a-long-name-{self._made:05}"

    def epoch(self) -> None:
        """Upsert, delete, and write a dead letter; by any strategy."""
        main, rows = self.branches["main"], list[Row]()
        for id in self._dice.sample(self.live, _ROWS):
            self._seq += 1
            row = {"id": id, "seq": self._seq, "at": _BEGIN + timedelta(minutes=self._seq), "text": f"{id} said so"}
            is_deleted = self._dice.random() < 0.2
            rows.append(row | {"op": "d" if is_deleted else "u"})
            main.pop(id, None)
            if not is_deleted:
                main[id] = row
        mode = Upsert(
            "id", sequence="seq", op_field="op", strategy=self._dice.choice(["merge_on_read", "copy_on_write"])
        )
        self.lake.config = self.lake.config.with_commit_mode(mode)
        self.lake.epoch(rows)

    def disturb(self) -> None:
        """Give a table dead letters, a compaction, a branch, and a file that a killed task has left."""
        id = self._dice.choice(self.live)
        letter = {"payload": f'{{"id": "{id}"}}', "error": "no number"}
        self.letters.load().append(pa.Table.from_pylist([letter], LETTERS))
        self._letters.append(id)
        view = IcebergTable(self.lake.config.ref)
        if self._dice.random() < 0.3:
            view.compact()
        if self._dice.random() < 0.3 and len(self.branches) < _BRANCHES:
            name = f"branch-{len(self.branches)}"
            SnapshotManager(view.ref).create_branch(name)
            self.branches[name] = dict(self.branches["main"])
        if self._dice.random() < 0.3:
            driver = self.lake.driver()
            driver.last_epoch(self.lake.query)
            self.lake.write(driver, 1_000_000 + self._seq, [{"id": id, "seq": 0, "op": "u", "text": f"{id} again"}])

    def choose(self) -> list[str]:
        """People to forget, who are followed by others."""
        ids = self._dice.sample(self.live, self._dice.randint(1, 3))
        self.live = [*(id for id in self.live if id not in ids), *(self._new() for _ in ids)]
        self.forgotten += ids
        for rows in self.branches.values():
            for id in ids:
                rows.pop(id, None)
        self._letters = [id for id in self._letters if id not in ids]
        return ids

    def grow_old(self, before: datetime) -> None:
        main = self.branches["main"]
        self.branches["main"] = {id: row for id, row in main.items() if row["at"] >= before}

    @property
    def now(self) -> datetime:
        return _BEGIN + timedelta(minutes=self._seq)

    def check(self) -> None:
        """Compare all branches with the model, as two readers see them, and scan the bytes of the lake."""
        table = self.lake.table()
        for branch, rows in self.branches.items():
            found = table.scan(selected_fields=_COLUMNS).use_ref(branch).to_arrow().sort_by("id").to_pylist()
            assert found == [rows[id] for id in sorted(rows)], branch
        by_duckdb = {row["id"]: row["text"] for row in self.lake.duckdb_rows()}
        assert by_duckdb == {id: row["text"] for id, row in self.branches["main"].items()}
        payloads = self.letters.load().scan().to_arrow()["payload"].to_pylist()
        assert sorted(payloads) == sorted(f'{{"id": "{id}"}}' for id in self._letters)
        left = guilty(self.lake.folder, *self.forgotten) if self.forgotten else []
        assert left == [], left


def run(folder: Path, kills: int, seed: int, version: str = "2") -> Counter[str]:
    """Kill erasures until so many have died; return how often they died at each point.

    After each death an erasure in this process goes to its end.

    Args:
        folder: An empty folder.
        kills: How often the process dies.
        seed: Repeats the schedule, except for the moments at random.
        version: The table's format version.

    Raises:
        AssertionError: If bytes of an erased row are in the lake, or another row is not what it should be.
    """
    dice, died = random.Random(seed), Counter[str]()
    people = _People(folder, dice, version)
    with closing(people.lake):
        while died.total() < kills:
            for _ in range(dice.randint(1, 3)):
                people.epoch()
                people.disturb()
            point = dice.choice((*ERASURE_POINTS, *EXPIRY_POINTS, *[_AT_RANDOM] * 3, ROW_TTL_POINT))
            died[point] += _old_rows_die(people) if point == ROW_TTL_POINT else _erasure_dies(people, dice, point)
            people.check()
    return +died


def _old_rows_die(people: _People) -> bool:
    ref, before = people.lake.config.ref, people.now - timedelta(minutes=4 * _ROWS)
    driver = Drivers().start(maintenance.delete_old_rows, ref, before, failpoint=f"{ROW_TTL_POINT}@0")
    has_died = _ends(driver, _TIMEOUT)
    maintenance.delete_old_rows(ref, before)
    people.grow_old(before)
    return has_died


def _erasure_dies(people: _People, dice: random.Random, point: str) -> bool:
    ref, ids = people.lake.config.ref, people.choose()
    number = dice.randint(1, 3) if point == EXPIRY_POINTS[1] else 0
    armed = "" if point == _AT_RANDOM else f"{point}@{number}"
    driver = Drivers().start(forget, ref, ids, people.letters, failpoint=armed)
    has_died = _ends(driver, dice.uniform(*_SECONDS) if point == _AT_RANDOM else _TIMEOUT)
    _erase(ref, ids, people.letters)
    return has_died


def _ends(driver: Any, seconds: float) -> bool:
    """Kill a process after some seconds; return whether it has died, by this or at its failpoint."""
    driver.join(seconds)
    driver.kill()
    driver.join()
    assert driver.exitcode in (0, -signal.SIGKILL), f"it ended with status {driver.exitcode}"
    return bool(driver.exitcode != 0)
