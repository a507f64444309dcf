"""Many tables of Debezium's messages by one job: each has the columns, and the mode, that its rows need."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_told_columns import ID, NOTE, PAID, message
from volley import Environment, FileSource, History, IcebergSink, IcebergSinkConfig, Upsert
from volley.iceberg.modes import CommitMode

Stored = Callable[..., list[tuple[Any, ...]]]

CHANGES = [
    message(1, [ID, PAID], "c", {"id": 1, "paid": "AeI6"}, "bills"),
    message(2, [ID], "c", {"id": 1}, "visits"),
    message(3, [ID, PAID, NOTE], "u", {"id": 1, "paid": "AA==", "note": "free"}, "bills"),
    message(4, [ID], "d", {"id": 1}, "visits"),
]


@pytest.fixture
def stored(config: IcebergSinkConfig) -> Stored:
    """The rows of a table, by these columns."""

    def rows(name: str, *columns: str) -> list[tuple[Any, ...]]:
        table = config.ref.beside(name).load().scan().to_arrow().to_pylist()
        return sorted(tuple(row[column] for column in columns) for row in table)

    return rows


@pytest.fixture
def write(environment: Environment, config: IcebergSinkConfig, tmp_path: Path) -> Callable[..., None]:
    """Write changes to the tables that they name."""

    def run(lines: Sequence[str], mode: CommitMode, keys: Any, **options: Any) -> None:
        (tmp_path / "changes.json").write_text("\n".join(lines))
        options = {"packed": True, "source": ["table"], **options}
        source = FileSource(tmp_path / "changes.json", format="debezium", schema="rows binary", options=options)
        sink = IcebergSink(config.with_commit_mode(mode).with_schema_evolution("full"))
        tables = sink.routed("{source_table}", rows="rows", key_fields=keys)
        environment.from_source(source).to_sink(tables).execute("packed")

    return run


def test_the_tables_of_a_file_have_the_keys_that_the_sink_names(write: Callable[..., None], stored: Stored) -> None:
    """Each has the columns that its messages tell; one without a key is a changelog."""
    write(CHANGES, Upsert(), {"bills": ["id"]})
    assert stored("bills", "id", "paid", "note") == [(1, Decimal("0.00"), "free")]
    assert stored("visits", "id", "_op") == [(1, "d"), (1, "i")]


def test_the_history_of_each_table(write: Callable[..., None], stored: Stored) -> None:
    """Versions in the order of the log, whatever that of the file; a column that is added later is null before."""
    write(CHANGES[::-1], History(), {"bills": ["id"], "visits": ["id"]})
    limits = "valid_from", "valid_to", "is_current"

    def places(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The rows with the last digit of the place in the log."""
        return [tuple(part[8:16][-1] if isinstance(part, bytes) else part for part in row) for row in rows]

    assert places(stored("bills", *limits, "id", "paid", "note")) == [
        (1, 3, False, 1, Decimal("1234.50"), None),
        (3, None, True, 1, Decimal("0.00"), "free"),
    ]
    assert places(stored("visits", *limits, "id")) == [(2, 4, False, 1)]


@pytest.mark.parametrize("in_order", [False, True])
def test_flattened_rows_go_to_the_tables_that_they_tell(
    write: Callable[..., None], stored: Stored, in_order: bool
) -> None:
    """They come in the order of the log if they tell their place there, else in that of the file."""

    def row(lsn: int, table: str, op: str, fields: list[dict[str, Any]], values: dict[str, Any]) -> str:
        place = {} if in_order else {"__source_sequence": json.dumps(["1", str(lsn)]), "__source_snapshot": "false"}
        told = {"__op": op, "__deleted": str(op == "d").lower(), "__table": table, **place}
        added = [{"field": name, "type": "string", "optional": True} for name in told]
        schema = {"type": "struct", "fields": [*fields, *added]}
        return json.dumps({"schema": schema, "payload": {**values, **told}})

    rows = [
        row(1, "bills", "c", [ID, PAID], {"id": 1, "paid": "AeI6"}),
        row(4, "bills", "u", [ID, PAID, NOTE], {"id": 1, "paid": "AA==", "note": "free"}),
        row(3, "bills", "u", [ID, PAID], {"id": 1, "paid": "AeI6"}),
        row(5, "visits", "c", [ID], {"id": 1}),
        row(7, "visits", "d", [ID], {"id": 1}),
        row(6, "visits", "c", [ID], {"id": 2}),
    ]
    write(rows, Upsert(), {"bills": ["id"], "visits": ["id"]}, flattened=True)
    last = (Decimal("1234.50"), None) if in_order else (Decimal("0.00"), "free")
    assert stored("bills", "id", "paid", "note") == [(1, *last)]
    assert stored("visits", "id") == [(2,)]


def test_declared_columns_of_several_tables_and_their_changelog(
    environment: Environment, config: IcebergSinkConfig, stored: Stored, tmp_path: Path
) -> None:
    """Rows of one schema are routed to their tables; a table that is only appended to has every change."""
    (tmp_path / "changes.json").write_text("\n".join(CHANGES[::-1]))
    options = {"key_fields": ["id"], "source": ["table"]}
    source = FileSource(
        tmp_path / "changes.json", format="debezium", schema="id long, paid decimal(10,2), note string", options=options
    )
    changes = environment.from_source(source)
    mirrored = IcebergSink(config.with_commit_mode(Upsert())).routed(
        "{source_table}", key_fields="id", omit=["source_table"]
    )
    kept = IcebergSink(replace(config, table="log"))
    changes.to_sink(mirrored).to_sink(kept).execute("declared")
    assert stored("bills", "id", "paid", "note") == [(1, Decimal("0.00"), "free")]
    assert stored("visits", "id") == []
    log = config.ref.beside("log").load().scan().to_arrow().sort_by("_seq").to_pylist()
    assert [(row["source_table"], row["_op"], row["id"], row["paid"], row["_unchanged"]) for row in log] == [
        ("bills", "i", 1, Decimal("1234.50"), None),
        ("visits", "i", 1, None, None),
        ("bills", "u", 1, Decimal("0.00"), None),
        ("visits", "d", 1, None, None),
    ]
