"""Types that are altered: values that were stored before print otherwise, and the stream does not say so."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from tests.captured import Database
from tests.postgres.jobs import difference, differences, mirror, mirror_all
from tests.postgres.runs import running
from tests.waiting import wait_until
from volley import SourceError
from volley.formats.packed_rows import unpack_rows

TYPES = (
    "create type mood as enum ('sad', 'glad')",
    "create type place as (street text, town text)",
    "create type visit as (number int, mood mood)",
    "create domain feeling as mood",
    "create type span as range (subtype = mood)",
)
COLUMNS = {
    "an enum": ("mood", "'sad'"),
    "an array": ("mood[]", "'{sad,glad}'"),
    "a domain": ("feeling", "'sad'"),
    "a range": ("span", "'[sad,glad]'"),
    "a multirange": ("span_multirange", "'{[sad,sad]}'"),
    "an attribute": ("visit", "'(1,sad)'"),
    "an array of attributes": ("visit[]", "array[(1, 'sad')::visit]"),
}
RENAMED = "alter type mood rename value 'sad' to 'low'"


def fill(shop: Database, column: str, value: str) -> None:
    shop.run(*TYPES, f"create table people (id int primary key, it {column})")
    shop.run(f"insert into people values (1, {value}), (2, null)")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("kind", COLUMNS)
def test_a_label_that_is_renamed_leads_to_a_reload(shop: Database, tmp_path: Path, kind: str) -> None:
    fill(shop, *COLUMNS[kind])
    source = shop.source("public.people", on_rewrite="reload")
    mirror(tmp_path, source)
    shop.run(RENAMED)
    mirror(tmp_path, source)
    assert difference(shop, tmp_path, "select id, it::text from people") == []


ATTRIBUTES = (
    "alter type place add attribute land text",
    "alter type place drop attribute street",
)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("statement", ATTRIBUTES)
def test_other_attributes_lead_to_a_reload(any_shop: Database, tmp_path: Path, statement: str) -> None:
    fill(any_shop, "place", "'(Elm,Ulm)'")
    source = any_shop.source(["public.people"], packed=True, on_rewrite="reload")
    mirror_all(tmp_path, source)
    any_shop.run("drop table orders", statement)
    mirror_all(tmp_path, source)
    assert differences(any_shop, tmp_path) == {"people": []}


@pytest.mark.parametrize(
    ("column", "value", "statement", "message"),
    [
        ("mood", "'sad'", RENAMED, r"type public\.mood of column 'it' was altered: 'sad' is 'low' now"),
        ("place", "'(Elm,Ulm)'", ATTRIBUTES[0], r"type public\.place of column 'it' was altered: its attributes are"),
    ],
)
def test_an_altered_type_stops_the_job(
    shop: Database, tmp_path: Path, column: str, value: str, statement: str, message: str
) -> None:
    fill(shop, column, value)
    with running(shop.source("public.people"), tmp_path) as run:
        run.epoch()
    shop.run(statement)
    with pytest.raises(SourceError, match=rf"table public\.people: {message}"):
        running(shop.source("public.people"), tmp_path, run.start).__enter__()
    with running(shop.source("public.people", on_rewrite="ignore"), tmp_path, run.start) as run:
        assert run.epoch() == []
    with running(shop.source("public.people"), tmp_path, run.start) as run:
        assert run.epoch() == []


@pytest.mark.usefixtures("looks_often")
def test_an_altered_type_is_noticed_while_the_job_runs(shop: Database, tmp_path: Path) -> None:
    """Nothing is written to the table meanwhile."""
    fill(shop, "mood", "'sad'")
    with running(shop.source("public.people", bounded=False, on_rewrite="reload"), tmp_path) as run:
        run.epoch()
        shop.run(RENAMED)
        wait_until(lambda: run.end()["loads"] == 2, 30, "the load")
        assert [(row["id"], row["it"]) for row in run.epoch()] == [(None, None), (1, "low"), (2, None)]


def test_types_that_are_altered_without_another_text(shop: Database, tmp_path: Path) -> None:
    fill(shop, "visit", "'(1,sad)'")
    shop.run("alter table people add column at place")
    with running(shop.source("public.people"), tmp_path) as run:
        run.epoch()
    shop.alone("alter type mood add value 'calm' before 'glad'")
    shop.run("alter type place rename attribute town to city", "alter type mood rename to temper")
    shop.run("insert into people values (3, '(2,calm)', '(Elm,Ulm)')")
    with running(shop.source("public.people"), tmp_path, run.start) as run:
        assert [(row["it"], row["at"]) for row in run.epoch()] == [("(2,calm)", "(Elm,Ulm)")]


def test_a_domain_that_is_dropped_while_its_values_wait(shop: Database, tmp_path: Path) -> None:
    """They have the type below it, also when the catalog has forgotten it."""
    shop.run(
        "create domain amount as int",
        "create domain price as numeric(6, 2)",
        "create domain best_price as price check (value > 0)",
        "create table wares (id int primary key, n amount, p best_price)",
    )
    source = shop.source("public.wares", packed=True)
    with running(source, tmp_path) as run:
        run.epoch()
    shop.run("insert into wares values (1, 10, 1.5)")
    shop.run("alter table wares drop n, drop p", "drop domain amount, best_price, price")
    shop.run("insert into wares values (2)")
    with running(source, tmp_path, run.start) as run:
        batches = [batch for packet in run.epoch() for batch in unpack_rows(packet["rows"])]
    assert [row for batch in batches for row in batch.select(["id"]).to_pylist()] == [{"id": 1}, {"id": 2}]
    assert batches[0].select(["n", "p"]).to_pylist() == [{"n": 10, "p": Decimal("1.50")}]
