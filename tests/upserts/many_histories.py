"""Compares the tables of many random histories with DuckDB's: python -m tests.upserts.many_histories 2000 [FIRST]

A history has a number, by which it can be made again. It differs in keys, orders, repetitions, deletions, truncates,
epochs, strategy, format version, tracked columns, and in what maintenance does between the epochs.
"""

from __future__ import annotations

import random
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from tests.upserts.histories import SCHEMA, Row, expected
from tests.upserts.lake import Lake
from tests.upserts.test_sequence import keep
from volley.iceberg import History
from volley.iceberg.modes import Strategy

STRATEGIES: list[Strategy] = ["auto", "merge_on_read", "copy_on_write"]


def changes(choose: random.Random) -> list[Row]:
    """Changes in random order, some of them twice."""
    rows: list[Row] = [
        {
            "id": choose.randint(0, 3),
            "part": choose.choice("aab"),
            "seq": choose.randint(0, 7),
            "value": choose.choice([None, 0, 1]),
            "note": choose.choice([None, "x", "y"]),
            "op": choose.choice(["u", "c", None, None, "D", "delete"]),
        }
        for _ in range(choose.randint(1, 24))
    ]
    if choose.random() < 0.35:
        truncate = {"id": None, "part": None, "value": None, "note": None, "op": choose.choice(["t", "TRUNCATE"])}
        rows += [{**truncate, "seq": choose.randint(0, 7)} for _ in range(choose.randint(1, 2))]
    rows += choose.choices(rows, k=choose.randint(0, 6))
    choose.shuffle(rows)
    return rows


def epochs(rows: list[Row], choose: random.Random) -> list[list[list[Row]]]:
    """The changes of each task of each epoch."""
    cut: list[list[list[Row]]] = [[[]]]
    for row in rows:
        match choose.choice(["row", "row", "task", "epoch"]):
            case "epoch":
                cut.append([[]])
            case "task":
                cut[-1].append([])
        cut[-1][-1].append(row)
    return [tasks for tasks in cut if any(tasks)]


def differs(number: int, folder: str) -> bool:
    """Whether the table of a history is another than DuckDB's."""
    choose = random.Random(number)
    rows = changes(choose)
    track = choose.choice([None, "value"])
    strategy: Strategy = choose.choice(STRATEGIES)
    mode = History(["id", "part"], sequence="seq", op_field="op", track=track, strategy=strategy)
    version = {"format-version": choose.choice("123")}
    with closing(Lake(Path(folder), mode, SCHEMA, **version)) as lake:
        for tasks in epochs(rows, choose):
            lake.epoch(*tasks)
            keep(lake, choose.choice(["", "", "", "compact", "expire", "orphans"]))
        return lake.rows() != expected(rows, [track] if track else ["value", "note"])


def main(count: int, first: int = 0) -> int:
    """How many of some histories differ; tells which."""
    different = 0
    for number in range(first, first + count):
        with tempfile.TemporaryDirectory() as folder:
            if differs(number, folder):
                different += 1
                print(f"history {number} differs", flush=True)
    print(f"{count} histories, {different} differ")
    return different


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])) > 0)
