"""Change capture, from a real server: the rows of a table, then every change of them, in order."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.captured import Database
from tests.postgres.runs import running


def applied(rows: list[dict[str, Any]], to: dict[int, dict[str, Any]] | None = None) -> dict[int, dict[str, Any]]:
    """The table that results if all rows are applied, as an upsert does."""
    table = dict(to or {})
    for row in sorted(rows, key=lambda row: row["_seq"]):
        values = {name: value for name, value in row.items() if not name.startswith("_")}
        if row["_op"] == "d":
            table.pop(row["id"], None)
        else:
            table[row["id"]] = values
    return table


def stored(shop: Database) -> dict[int, dict[str, Any]]:
    names = ("id", "customer", "total", "note")
    return {row[0]: dict(zip(names, row, strict=True)) for row in shop.rows("select * from orders")}


def test_rows_then_changes(shop: Database, tmp_path: Path) -> None:
    with running(shop.source(), tmp_path) as run:
        loaded = run.epoch()
        offset = run.start
    assert {row["_op"] for row in loaded} == {"r"}
    assert applied(loaded) == stored(shop)
    assert len(loaded) == 1000
    shop.run(
        "insert into orders values (2001, 'new', 1.5, null), (2002, '', -0.01, 'ünïcode')",
        "update orders set note = null, total = 7 where id = 1",
        "delete from orders where id between 10 and 20",
        "update orders set id = 3000 where id = 2",
    )
    with running(shop.source(), tmp_path, offset) as run:
        changes = run.epoch()
    assert [row["_op"] for row in changes] == ["i", "i", "u", *"d" * 11, "d", "u"]
    assert changes[0] == {
        **{"id": 2001, "customer": "new", "total": Decimal("1.50"), "note": None},
        **{"_op": "i", "_seq": changes[0]["_seq"], "_unchanged": None},
    }
    assert applied(changes, applied(loaded)) == stored(shop)
