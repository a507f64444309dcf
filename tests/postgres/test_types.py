"""Values of every type: what the load reads and what the stream sends are the same."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from psycopg2.extras import execute_values

from tests.captured import Database
from tests.postgres.runs import running
from volley import SourceError

TYPES = {
    "flag": ("bool", ["true", "false"]),
    "small": ("smallint", ["-32768", "32767"]),
    "whole": ("integer", ["-2147483648", "2147483647"]),
    "large": ("bigint", ["-9223372036854775808", "9223372036854775807"]),
    "single": ("real", ["1.1", "'NaN'", "'-Infinity'", "3.4028235e38"]),
    "double": ("double precision", ["0.1", "'NaN'", "'Infinity'", "1e-308"]),
    "money": ("money", ["12.5", "-0.01"]),
    "exact": ("numeric(10, 2)", ["-99999999.99", "0.01"]),
    "wide": ("numeric(38, 10)", ["1234567890123456789012345678.0123456789", "0"]),
    "any_number": ("numeric", ["1.000", "'NaN'", "'Infinity'", "1e40", "1e-20"]),
    "too_wide": ("numeric(50, 2)", ["1.25"]),
    "text": ("text", ["''", "'Smörgås 🍰'", "e'a\\tb\\nc\\\\d'", "repeat('x', 5000)"]),
    "short": ("varchar(5)", ["'ab'", "''"]),
    "padded": ("char(4)", ["'ab'", "''"]),
    "named": ("name", ["'x'"]),
    "bytes": ("bytea", ["'\\x00ff10'", "''", "'\\x'"]),
    "day": ("date", ["'0001-01-01'", "'9999-12-31'", "'2024-02-29'"]),
    "clock": ("time", ["'00:00'", "'23:59:59.999999'", "'12:34:56.7'"]),
    "zoned_clock": ("timetz", ["'12:34:56+02'"]),
    "moment": ("timestamp", ["'0001-01-01'", "'9999-12-31 23:59:59.999999'", "'2024-02-29 01:02:03.4'"]),
    "zoned_moment": ("timestamptz", ["'2024-02-29 01:02:03+02'", "'1969-12-31 23:59:59.5+00'"]),
    "span": ("interval", ["'1 year 2 days 03:04:05.678'", "'-1 day'"]),
    "uid": ("uuid", ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"]),
    "json_text": ("json", ["'{\"a\":  1}'", "'null'"]),
    "json_tree": ("jsonb", ['\'{"b": [1, null], "a": 1.0}\'']),
    "numbers": ("int[]", ["'{1,NULL,3}'", "'{}'", "'{{1,2},{3,4}}'"]),
    "texts": ("text[]", ['\'{"a,b","c\\"d"}\'']),
    "address": ("inet", ["'10.0.0.1'", "'10.0.0.0/8'", "'::1'"]),
    "network": ("cidr", ["'10.0.0.0/8'"]),
    "bits": ("bit varying", ["B'0101'"]),
    "range": ("int4range", ["'[1,5)'", "'empty'"]),
    "mood": ("mood", ["'happy'", "'sad'"]),
    "amount": ("amount", ["1.5"]),
    "pair": ("pair", ["(1, 'x')::pair"]),
    "place": ("point", ["'(1,2)'"]),
    "document": ("xml", ["'<a>1</a>'"]),
    "words": ("tsvector", ["'a fat cat'"]),
}


@pytest.fixture
def typed(shop: Database) -> Database:
    shop.run(
        "create type mood as enum ('happy', 'sad')",
        "create type pair as (number int, name text)",
        "create domain amount as numeric(8, 3) check (value > 0)",
        "create table typed (id serial primary key, "
        + ", ".join(f'"{name}" {type}' for name, (type, _) in TYPES.items())
        + ", doubled int generated always as (whole / 2) stored)",
    )
    return shop


def inserts() -> list[str]:
    """A row of nulls, and rows with all values."""
    count = max(len(values) for _, values in TYPES.values())
    names = ", ".join(f'"{name}"' for name in TYPES)
    rows = [", ".join(values[number % len(values)] for _, values in TYPES.values()) for number in range(count)]
    return [
        f"insert into typed ({names}) values ({', '.join(['null'] * len(TYPES))})",
        *(f"insert into typed ({names}) values ({row})" for row in rows),
    ]


def without(rows: list[dict[str, Any]], *names: str) -> list[str]:
    """Rows as text, where NaN equals NaN."""
    return [repr({name: value for name, value in row.items() if name not in names}) for row in rows]


def test_the_load_and_the_stream_have_the_same_values(typed: Database, tmp_path: Path) -> None:
    typed.run(*inserts())
    with running(typed.source("public.typed"), tmp_path) as run:
        loaded, offset = run.epoch(), run.start
        types = {field.name: str(field.type) for field in run.reader.schema}
    typed.run(*inserts())
    with running(typed.source("public.typed"), tmp_path, offset) as run:
        inserted = run.epoch()
    assert len(loaded) == 6
    assert without(loaded, "id", "_op", "_seq") == without(inserted, "id", "_op", "_seq")
    assert "doubled" not in loaded[0]
    assert types["exact"] == "decimal128(10, 2)"
    assert types["amount"] == "decimal128(8, 3)"
    assert types["zoned_moment"] == "timestamp[us, tz=UTC]"
    assert loaded[1]["bytes"] == b"\x00\xff\x10"
    assert loaded[1]["address"] == "10.0.0.1"
    assert loaded[1]["padded"] == "ab  "
    assert loaded[2]["any_number"] == "NaN"
    assert loaded[1]["span"] == "P1Y2DT3H4M5.678S"


def test_the_load_keeps_texts_of_any_characters(shop: Database, tmp_path: Path) -> None:
    chance = random.Random(20)
    signs = [*'"\\(),;#{} \n\r\t\x0b\x01aNß🍰\ufeff', "\\N", "null", "\r\n", "x" * 9_000]

    def text() -> str | None:
        return None if chance.random() < 0.2 else "".join(chance.choices(signs, k=chance.randint(0, 5)))

    texts = [(number, text(), [text(), text()], text()) for number in range(2_000)]
    shop.run('create table texts (id int primary key, "a ""quoted"", name" text, listed text[], last text)')
    with closing(psycopg2.connect(shop.uri)) as connection, connection, connection.cursor() as cursor:
        execute_values(cursor, "insert into texts values %s", texts)
    with running(shop.source("public.texts"), tmp_path) as run:
        loaded = [tuple(row.values())[:4] for row in run.epoch()]
    assert sorted(loaded) == shop.rows('select id, "a ""quoted"", name", listed::text, last from texts order by id')


def test_a_value_of_20_megabytes(shop: Database, tmp_path: Path) -> None:
    tree = "jsonb_build_object('text', repeat('x', 20 << 20))"
    shop.run("create table trees (id int primary key, tree jsonb)", f"insert into trees values (1, {tree})")
    with running(shop.source("public.trees"), tmp_path) as run:
        (loaded,) = run.epoch()
    shop.run(f"insert into trees values (2, {tree})")
    with running(shop.source("public.trees"), tmp_path, run.start) as run:
        (inserted,) = run.epoch()
    ((expected,),) = shop.rows("select tree::text from trees where id = 1")
    assert loaded["tree"] == inserted["tree"] == expected


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("day", "'infinity'"),
        ("day", "'0044-03-15 BC'"),
        ("moment", "'-infinity'"),
        ("zoned_moment", "'294276-01-01'"),
        ("clock", "'24:00'"),
        ("exact", "'NaN'"),
    ],
)
def test_a_value_that_iceberg_does_not_have(typed: Database, tmp_path: Path, column: str, value: str) -> None:
    typed.run(f"insert into typed ({column}) values ({value})")
    with (
        running(typed.source("public.typed"), tmp_path / "fail") as run,
        pytest.raises(SourceError, match=f"column '{column}' has .*which .* does not have"),
    ):
        run.epoch()
    typed.drop_slots()
    with running(typed.source("public.typed", unrepresentable="null"), tmp_path / "null") as run:
        assert [row[column] for row in run.epoch()] == [None]
        offset = run.start
    typed.run(f"insert into typed ({column}) values ({value}), (null)")
    with running(typed.source("public.typed", unrepresentable="null"), tmp_path / "null", offset) as run:
        assert [row[column] for row in run.epoch()] == [None, None]
        typed.run(f"insert into typed ({column}) values ({value})")
    with (
        running(typed.source("public.typed"), tmp_path / "null", run.start) as run,
        pytest.raises(SourceError, match=f"column '{column}' has .*which .* does not have"),
    ):
        run.epoch()
