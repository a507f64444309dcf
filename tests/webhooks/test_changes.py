"""Changes of Debezium Server's HTTP sink: rows of one table, or of many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.end_to_end.test_told_columns import ID, NOTE, message
from tests.webhooks.hooks import SCHEMA, receiving
from volley.formats.packed_rows import unpack_rows


def change(lsn: int, op: str, row: dict[str, Any]) -> dict[str, Any]:
    source = {"connector": "postgresql", "snapshot": "false", "sequence": json.dumps(["1", str(lsn)])}
    places = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {"op": op, **places, "source": source}


def test_changes_of_a_table(tmp_path: Path) -> None:
    """One an event, or several in an array; a heartbeat is no row."""
    options = {"key_fields": ["id"], "source": ["connector"]}
    with receiving(tmp_path, value_format="debezium", schema=SCHEMA, options=options) as hook:
        assert hook.post(change(1, "c", {"id": 1, "name": "a"})).status == 202
        assert (
            hook.post([change(2, "u", {"id": 1, "name": "b"}), {"ts_ms": 1}, change(3, "d", {"id": 1})]).status == 202
        )
        assert hook.post({"ts_ms": 2}).status == 202
        for body, fault in ((change(4, "x", {"id": 2}), "op 'x' is none of Debezium's"), ({"id": 1}, "has no op")):
            bad = hook.post(body)
            assert (bad.status, fault in bad.text) == (400, True), bad.text
        rows = hook.rows()
    assert [(row["_op"], row["id"], row["name"], row["source_connector"]) for row in rows] == [
        ("i", 1, "a", "postgresql"),
        ("u", 1, "b", "postgresql"),
        ("d", 1, None, "postgresql"),
    ]
    assert sorted(row["_seq"] for row in rows) == [row["_seq"] for row in rows]


def test_changes_of_many_tables(tmp_path: Path) -> None:
    options = {"packed": True, "source": ["table"]}
    with receiving(tmp_path, value_format="debezium", schema="rows binary", options=options) as hook:
        users, visits = (
            message(1, [ID, NOTE], "c", {"id": 1, "note": "a"}, "users"),
            message(2, [ID], "c", {"id": 7}, "visits"),
        )
        assert hook.post(users.encode()).status == 202
        assert hook.post(f"[{visits}, {users}]".encode()).status == 202
        bad = hook.post(change(3, "c", {"id": 1}))
        assert (bad.status, "it carries no schema" in bad.text) == (400, True)
        rows = [(row["source_table"], unpack_rows(row["rows"])) for row in hook.rows()]
    found = [(table, [row["id"] for batch in batches for row in batch.to_pylist()]) for table, batches in rows]
    assert sorted((table, id) for table, ids in found for id in ids) == [("users", 1), ("users", 1), ("visits", 7)]
