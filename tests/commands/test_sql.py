"""volley sql: statements over the sources and tables of a file, read back by plain pyiceberg."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from volley import IcebergStorage, TableRef
from volley.cli.app import app
from volley.errors import ExpressionError
from volley.queries.statements import Statement, statements_of

ROWS = pa.table({"id": [1, 2, 3], "customer": ["Ada", "Bob", "Ada"], "cents": [500, 250, 999]})


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableRef:
    monkeypatch.chdir(tmp_path)
    lake = tmp_path / "lake"
    sales = TableRef("shop", "sales", IcebergStorage.Local(str(lake)))
    catalog = sales.load_catalog()
    catalog.create_namespace("shop")
    catalog.create_table("shop.sales", ROWS.schema).append(ROWS)
    (tmp_path / "names.csv").write_text("customer,title\nAda,Dr\nBob,Mr\n")
    (tmp_path / "volley.yaml").write_text(
        f"""
version: "1.0"
sources:
  names:
    connector: files
    config: {{path: names.csv, format: csv, schema: "customer string, title string", bounded: true}}
sinks:
  lake:
    connector: iceberg
    config: {{namespace: shop, table: sales, local: {{path: {lake}}}}}
pipelines:
  names: {{source: names, sink: lake}}
runtime: {{checkpoint_dir: {tmp_path / "checkpoints"}}}
"""
    )
    return sales


def ran(text: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["sql", "-", *options], input=text)


def rows_of(table: TableRef) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = table.load().scan().to_arrow().to_pylist()
    return rows


def test_queries_over_sources_and_tables_are_shown(shop: TableRef) -> None:
    text = """
    -- Sales with titles; the dearest first.
    select s.customer, title, cents from lake s join names n on s.customer = n.customer order by cents desc limit 2;
    select count(*) as n from shop.sales where customer <> ';'
    """
    result = ran(text, "--json")
    assert result.exit_code == 0, result.output
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"customer": "Ada", "title": "Dr", "cents": 999},
        {"customer": "Ada", "title": "Dr", "cents": 500},
        {"n": 3},
    ]
    shown = ran("select customer from shop.sales order by 1 desc limit 1")
    assert [line.strip() for line in shown.stdout.splitlines()][0::3] == ["customer", "Bob"]


def test_a_view_is_made_and_then_brought_up_to_date(shop: TableRef) -> None:
    text = """
    create materialized view per_customer as
    select customer, sum(cents) as cents from shop.sales group by customer;
    create materialized view shop.rich as select customer from shop.per_customer where cents > 1000
    """
    first = ran(text)
    assert first.exit_code == 0, first.output
    assert "per_customer: full refresh (it is the first one)" in " ".join(first.stdout.split())
    assert rows_of(shop.beside("rich")) == [{"customer": "Ada"}]
    assert json.loads(ran("select * from shop.per_customer where cents < 300", "--json").stdout) == {
        "customer": "Bob",
        "cents": 250,
    }
    shop.load().append(pa.table({"id": [4], "customer": ["Bob"], "cents": [5000]}))
    assert ran(text).exit_code == 0
    assert sorted(str(row["customer"]) for row in rows_of(shop.beside("rich"))) == ["Ada", "Bob"]


@pytest.mark.usefixtures("spark")
def test_tables_are_made_and_filled(shop: TableRef) -> None:
    text = """
    create table shop.copy as select id, cents * 2 as twice from shop.sales where customer = 'Ada';
    insert into shop.copy select id + 10 as other, cents as c from shop.sales where id = 2
    """
    result = ran(text)
    assert result.exit_code == 0, result.output
    rows = sorted((row["id"], row["twice"]) for row in rows_of(shop.beside("copy")))
    assert rows == [(1, 1000), (3, 1998), (12, 250)]


WRONG = [
    ("select cust from shop.sales", "there is no column cust in line 1, column 8"),
    ("select id\nfrom shop.sales;\nselect\n nme from names", "there is no column nme in line 4, column 2"),
    ("select id from saless", "there is no table saless"),
    ("select id from shop.other", "shop.other"),
    ("create table shop.sales as select 1 as id from names", "table shop.sales is there already"),
    ("insert into shop.other select customer from names", "there is no table shop.other"),
    ("insert into shop.sales select customer from names", "the query has 1 columns (customer), table shop.sales has 3"),
    ("create table shop.copy", "a statement without a query in line 1"),
    ("drop table shop.sales", "is no query"),
    ("create materialized view v as select customer from names", "only an Iceberg table"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_what_is_wrong_is_named_and_writes_nothing(text: str, message: str, shop: TableRef) -> None:
    result = ran(text)
    assert result.exit_code != 0
    assert message in result.output
    assert rows_of(shop) == ROWS.to_pylist()


def test_a_file_that_can_not_be_read_is_named(shop: TableRef) -> None:
    result = CliRunner().invoke(app, ["sql", "nothing.sql"])
    assert (result.exit_code, "nothing.sql can't be read" in result.output) == (2, True)


def test_a_text_is_divided_into_statements() -> None:
    text = "select a from t; insert into s.u with w as (select b from t) select b from w, s.v;;"
    first, second = statements_of(text)
    assert first == Statement("select", "", "select a from t", ("t",))
    assert (second.kind, second.target, set(second.tables)) == ("insert", "s.u", {"t", "s.v"})
    assert second.query.strip() == "with w as (select b from t) select b from w, s.v"
    assert statements_of(" -- nothing\n") == []
    with pytest.raises(ExpressionError, match="a statement without a query"):
        statements_of("insert into t")


SESSION = """select count(*) as n
from shop.sales
where customer <> 'a;
b';
select nope from shop.sales;
insert into shop.sales select 4 as a, 'Eve' as b, 1 as c from names limit 1; select * from shop.sales where id = 4;
show tables;
select max(id) as last from shop.sales
"""


@pytest.mark.usefixtures("spark")
def test_without_a_file_statements_run_as_they_come_and_a_mistake_ends_none(shop: TableRef) -> None:
    result = CliRunner().invoke(app, ["sql", "--json"], input=SESSION)
    rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    names = [{"name": name} for name in ("names", "lake", "shop.sales")]
    assert rows == [{"n": 3}, {"id": 4, "customer": "Eve", "cents": 1}, *names, {"last": 4}], result.stderr
    assert "no column nope" in result.stderr
    assert result.exit_code == 1
    assert CliRunner().invoke(app, ["sql", "--json"], input="select count(*) as n from lake;").exit_code == 0


def test_a_terminal_has_a_prompt(shop: TableRef) -> None:
    """In a real terminal: a statement of two lines, one with a mistake, and the end."""
    terminal, inside = pty.openpty()
    command = [sys.executable, "-m", "volley", "sql"]
    with subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside) as process:
        os.close(inside)

        def typed(line: bytes, mark: bytes) -> bytes:
            """What is shown behind a line, up to a mark."""
            os.write(terminal, line)
            shown = b""
            while mark not in shown:
                shown += os.read(terminal, 10_000)
            return shown

        typed(b"", b"volley> ")
        typed(b"select max(cents)\n", b"-> ")
        assert b"999" in typed(b"as most from shop.sales;\n", b"volley> ")
        assert b"no column nope" in typed(b"select nope from lake;\n", b"volley> ")
        os.write(terminal, b"\x04")
        assert process.wait(60) == 0
    os.close(terminal)
