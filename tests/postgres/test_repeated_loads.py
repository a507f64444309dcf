"""A load that is planned again, by another snapshot, as its driver died: some sinks may have the rows of the first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.captured import Database, database
from tests.postgres.runs import Run, running
from tests.servers.postgres import Postgres
from volley.capture import segments
from volley.contracts.source import Offset

Rows = dict[int, dict[str, Any]]

NOTES = (
    "create table notes (id int primary key, number int, note text)",
    "alter table notes alter column note set storage external",
    "insert into notes select n, n, repeat(md5(n::text), 300) from generate_series(1, 20) n",
)


@pytest.fixture
def notes(shop: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A table with large values, which the stream leaves out if they do not change; a segment for each transaction."""
    monkeypatch.setattr(segments, "_SEGMENT_MESSAGES", 1)
    shop.run(*NOTES)
    return shop


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Database]:
    """The same table on a server that runs no other transactions: those of any database are in all snapshots."""
    (tmp_path / "server").mkdir()
    server = Postgres(tmp_path / "server").start()
    try:
        with database(server) as notes:
            notes.alone("alter system set autovacuum = off")
            notes.alone("select pg_reload_conf()")
            notes.run(*NOTES)
            yield notes
    finally:
        server.stop()


def applied(rows: list[dict[str, Any]], to: Rows) -> Rows:
    """The table that results if an epoch is applied, as an upsert does: values that the stream leaves out are there."""
    table, gone = dict(to), dict[int, dict[str, Any]]()
    for row in sorted(rows, key=lambda row: row["_seq"]):
        id, sequence = row["id"], row["_seq"]
        values = {name: value for name, value in row.items() if not name.startswith("_")}
        if row["_op"] == "t":
            table = {}
        elif row["_op"] == "d":
            gone[sequence] = table.pop(id, {})
        else:
            before = gone[sequence - 1] if sequence - 1 in gone else table.get(id, {})
            table[id] = values | {name: before[name] for name in row["_unchanged"] or ()}
    return table


def stored(notes: Database) -> Rows:
    names = ("id", "number", "note")
    return {row[0]: dict(zip(names, row, strict=True)) for row in notes.rows("select id, number, note from notes")}


def run_to_the_end(run: Run, *sinks: Rows) -> list[Rows]:
    """The tables of sinks after all epochs, of a segment each."""
    tables = [*sinks]
    while (end := run.end(1)) != run.start:
        rows = run.read(end)
        tables = [applied(rows, table) for table in tables]
        run.reader.committed(end)
        run.start = end
    return tables


STATEMENTS = {
    "a changed key": ["update notes set id = 900 where id = 1"],
    "an update, then a deletion": ["update notes set number = 0 where id = 3", "delete from notes where id = 3"],
    "a key that another row takes": ["delete from notes where id = 2", "update notes set id = 2 where id = 4"],
    "a key that changes twice": ["update notes set id = 901 where id = 5", "update notes set id = 5 where id = 901"],
    "a truncation": ["update notes set number = 0", "truncate notes", "insert into notes values (1, 1, 'again')"],
}


@pytest.mark.parametrize("statements", STATEMENTS.values(), ids=STATEMENTS)
def test_sinks_with_and_without_the_rows_of_the_first_snapshot(
    notes: Database, tmp_path: Path, statements: list[str]
) -> None:
    source = notes.source("public.notes")
    with running(source, tmp_path) as run:
        start, end = run.start, run.end()
        with_rows = applied(run.read(end), {})
    assert len(with_rows) == 20
    for statement in statements:
        notes.run(statement)
    with running(source, tmp_path, start) as run:
        without = applied(run.read(end), {})
        run.start = end
        tables = run_to_the_end(run, with_rows, without)
    notes.run("update notes set number = number + 1", "update notes set id = id + 50 where id < 10")
    with running(source, tmp_path, run.start) as run:
        tables = run_to_the_end(run, *tables)
    assert tables == [stored(notes)] * 2


def test_a_load_that_is_repeated_twice(notes: Database, tmp_path: Path) -> None:
    source = notes.source("public.notes")
    start: Offset | None = None
    planned: list[Offset] = []
    tables: list[Rows] = [{}]
    for number in range(3):
        with running(source, tmp_path, start) as run:
            # The epoch that died before is planned again, and then the next one, which dies, too.
            for end in planned[-1:]:
                assert run.read(end) == []
                run.start = end
            start, end = run.start, run.end()
            tables.append(applied(run.read(end), {}))
            planned.append(end)
        notes.run(f"update notes set id = {900 + number} where id = {number + 1}")
    assert [len(table) for table in tables] == [0, 20, 20, 20]
    with running(source, tmp_path, start) as run:
        assert run.read(planned[-1]) == []
        run.start = planned[-1]
        assert run_to_the_end(run, *tables) == [stored(notes)] * 4


def test_the_end_of_a_bounded_run_has_the_load_that_makes_up_for_a_repeated_one(
    notes: Database, tmp_path: Path
) -> None:
    source = notes.source("public.notes")
    with running(source, tmp_path) as run:
        start, end = run.start, run.end()
        run.plan()
    notes.run("update notes set id = 900 where id = 1")
    with running(source, tmp_path, start) as run:
        target = run.reader.latest_offset(start, None, None)
        assert run.read(end) == []
        repetition = run.reader.latest_offset(end, run.reader.limit, target)
        run.start = end
        assert applied(run.read(repetition), {}) == stored(notes)
        assert repetition == {"loads": 2, "next": 1}
        last = run.reader.latest_offset(repetition, run.reader.limit, target)
        assert last == {"loads": 2, "next": target["next"]}
        assert run.reader.latest_offset(last, run.reader.limit, target) == last


@pytest.mark.services
def test_a_snapshot_that_has_seen_the_same_reads_the_load_again(alone: Database, tmp_path: Path) -> None:
    notes, source = alone, alone.source("public.notes")
    with running(source, tmp_path) as run:
        start, end = run.start, run.plan()
    # The log goes on, but no row changes.
    notes.run("checkpoint", "select pg_logical_emit_message(false, 'other', 'text')")
    with running(source, tmp_path, start) as run:
        assert applied(run.read(end), {}) == stored(notes)
        run.start = end
        assert run.end() == end


def test_a_changelog_begins_again_with_a_truncation(notes: Database, tmp_path: Path) -> None:
    source = notes.source("public.notes", changelog=True)
    with running(source, tmp_path) as run:
        start, end = run.start, run.end()
        rows = run.read(end)
    notes.run("update notes set number = 0 where id = 1", "insert into notes values (30, 30, '')")
    with running(source, tmp_path, start) as run:
        rows += run.read(end)
        run.start = end
        rows += run.epoch()
    notes.run("delete from notes where id = 30")
    with running(source, tmp_path, run.start) as run:
        rows += run.epoch()
    # A sink with the rows of the first snapshot; one without has the events from the truncation on.
    assert [event["op"] for event in rows] == [*"r" * 20, "t", *"r" * 21, "d"]
    # The order is in the events, whichever table has them.
    assert [event["seq"] for event in rows] == sorted(event["seq"] for event in rows)
    assert [len({event["seq"] for event in rows[:end]}) for end in (20, 21, 42, 43)] == [1, 2, 3, 4]
    assert {event["after"]["id"]: event["after"]["number"] for event in rows[21:-1]} == {
        id: row["number"] for id, row in stored(notes).items()
    } | {30: 30}
