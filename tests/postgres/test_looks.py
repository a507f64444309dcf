"""A look at an idle database is one cheap query, which misses nothing that a whole look finds."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.captured import Database
from tests.postgres.runs import running
from tests.waiting import wait_until
from volley import SourceContext
from volley.capture.selection import Selection
from volley.connectors.postgres import watch
from volley.connectors.postgres.catalog import fingerprint
from volley.connectors.postgres.connection import connect
from volley.connectors.postgres.publication import ensure_publication

MAKES = (
    "create schema crm",
    "create type mood as enum ('sad', 'glad')",
    "create type place as (street text, town text)",
    "create table people (id int primary key, m mood, p place, n int, g int generated always as (n + 1) stored)",
    "create table parts (id int primary key, v text) partition by range (id)",
    "create table parts_1 partition of parts for values from (0) to (100)",
    "create table parts_2 (id int primary key, v text)",
)
CHANGES = (
    "alter table people rename n to number",
    "alter table people drop m",
    "alter table people add extra int",
    "alter table people alter id type bigint",
    "alter table people rename to persons",
    "alter table people set schema crm",
    "alter table people replica identity full",
    "alter table people set unlogged",
    "alter schema public rename to private",
    "alter type mood rename value 'sad' to 'low'",
    "alter type place add attribute land text",
    "alter type place drop attribute town",
    "alter table parts attach partition parts_2 for values from (100) to (200)",
    "alter table parts detach partition parts_1",
    "truncate parts_1",
    "create table later (id int primary key)",
    "drop table people",
    "vacuum full people",
    "alter publication volley drop table people",
    "alter publication volley set (publish = 'insert')",
    "alter publication volley drop table people; alter publication volley add table people",
    "drop publication volley; create publication volley for all tables",
    "drop publication volley",
)


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_changes_the_fingerprint(any_shop: Database, tmp_path: Path, change: str) -> None:
    any_shop.run(*MAKES)
    server = any_shop.source(None)._capture(SourceContext(str(tmp_path))).server
    with closing(connect(server)) as connection:
        named = "publication" in change and "for all" not in change
        selection = Selection.of(["public.*ople", "public.parts*"] if named else [])
        ensure_publication(connection, "volley", selection)
        before = watch._signatures(connection, "volley", Selection(()))
        mark = fingerprint(connection, "volley", before)
        any_shop.run("insert into people values (1)", "analyze people", "create temporary table t (id int)")
        assert fingerprint(connection, "volley", before) == mark
        any_shop.alone(change)
        assert watch._signatures(connection, "volley", Selection(())) != before
        assert fingerprint(connection, "volley", before) != mark


@pytest.fixture
def whole_looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tables each whole look has seen."""
    seen: list[int] = []
    signatures = watch._signatures

    def counted(*arguments: Any) -> Any:
        found = signatures(*arguments)
        seen.append(len(found))
        return found

    monkeypatch.setattr(watch, "_signatures", counted)
    return seen


@pytest.mark.usefixtures("looks_often")
def test_an_idle_look_does_not_describe_tables(
    any_shop: Database, tmp_path: Path, whole_looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def counted(*arguments: Any) -> int:
        looks.append(1)
        return fingerprint(*arguments)

    monkeypatch.setattr(watch, "fingerprint", counted)
    with running(any_shop.source(None, bounded=False), tmp_path) as run:
        run.epoch()
        wait_until(lambda: len(looks) > 5, 30, "some looks")
        before = len(whole_looks)
        wait_until(lambda: len(looks) > 10, 30, "some more")
        assert len(whole_looks) == before
        any_shop.run("create table later (id int primary key)")
        wait_until(lambda: whole_looks[-1] == 2, 30, "the look at the new table")


@pytest.mark.usefixtures("looks_often")
def test_looks_keep_one_connection(shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = list[int]()

    def counted(connection: Any, *arguments: Any) -> int:
        looks.append(connection.get_backend_pid())
        return fingerprint(connection, *arguments)

    monkeypatch.setattr(watch, "fingerprint", counted)
    with running(shop.source(bounded=False), tmp_path) as run:
        run.epoch()
        wait_until(lambda: len(looks) > 8, 30, "some looks")
        assert len({*looks[2:]}) == 1
        shop.run(f"select pg_terminate_backend({looks[-1]})")
        end = len(looks)
        wait_until(lambda: len(looks) > end + 5, 30, "some more")
        assert len({*looks}) <= 4
        assert looks[-1] != looks[end - 1]
        lag = run.reader.lag(run.start)
        assert lag is not None
        assert lag.retained_bytes is not None
