"""Debezium beside PostgreSQL: what it writes becomes the rows of the database, also when it is killed in between."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from tests.servers.debezium import Debezium
from tests.servers.postgres import Postgres
from tests.waiting import wait_until
from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, Upsert

WIRE = {"price": "Decimal", "at": "MicroTimestamp"}
CHANGES = (
    "update t set price = price + 1 where id < 4",
    "delete from t where id = 2",
    "insert into t values (9, 'new', null, null)",
    "update t set id = 20, name = 'key' where id = 5",
    "update t set name = 'last' where id = 3; update t set at = '2026-03-29 01:30:00.123456' where id = 20",
)


@pytest.mark.parametrize(("has_schemas", "in_order"), [(True, True), (False, False)], ids=["in order", "by sequence"])
def test_the_table_has_the_rows_of_the_database(
    postgres: Postgres, tmp_path: Path, has_schemas: bool, in_order: bool
) -> None:
    uri = postgres.database()
    engine = create_engine(uri)
    with engine.begin() as connection:
        connection.execute(text("create table t (id bigint primary key, name text, price numeric(10,2), at timestamp)"))
        # Random digits of 20 kB are stored out of line: an update that leaves them alone does not send them.
        large = "(select string_agg(md5(random()::text), '') from generate_series(1, 640) where g > 0)"
        connection.execute(text(f"insert into t select g, {large}, g + 0.5, now() from generate_series(1, 8) g"))
    folder = tmp_path / "debezium"
    folder.mkdir()
    debezium = Debezium(folder, uri, {"converter.schemas.enable": str(has_schemas).lower()}).start()
    try:
        wait_for(debezium, '"snapshot":"last"')
        for number, change in enumerate(CHANGES):
            with engine.begin() as connection:
                connection.execute(text(change))
            if number == 1:
                wait_for(debezium, '"op":"d"')
                debezium.kill()
                debezium.start()
        wait_for(debezium, "1774747800123456")
    finally:
        debezium.kill()
    with engine.connect() as connection:
        expected = [tuple(row) for row in connection.execute(text("select id, name, price, at from t order by id"))]
    engine.dispose()
    assert rows(debezium.lines, tmp_path, in_order, {} if has_schemas else {"wire": WIRE}) == expected
    assert {len(name) for _, name, _, _ in expected} == {3, 4, 20480}
    assert (expected[0][2], expected[-1][0]) == (Decimal("2.50"), 20)


def wait_for(debezium: Debezium, written: str) -> None:
    wait_until(lambda: written in debezium.lines.read_text(), 60, f"Debezium has written {written}")


def rows(lines: Path, folder: Path, in_order: bool, options: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of a table that the changes were written to."""
    source = FileSource(
        lines,
        format="debezium",
        schema="id long, name string, price decimal(10,2), at timestamp_ntz",
        options={"key_fields": ["id"], **options},
    )
    table = IcebergSinkConfig(namespace="db", table="t", storage=IcebergStorage.Local(str(folder / "lake")))
    stream = Environment("local[2]", checkpoint_dir=f"{folder}/checkpoints").from_source(source)
    stream = stream.drop("_seq") if in_order else stream
    stream.to_sink(IcebergSink(table.with_commit_mode(Upsert()))).execute("t")
    stored = table.ref.load().scan().to_arrow().select(["id", "name", "price", "at"]).sort_by("id")
    return [tuple(row.values()) for row in stored.to_pylist()]
