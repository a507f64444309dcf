"""Values of every type, equal in a load and in the binary log, and equal to what the server prints."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.mariadb.shops import SERVERS, Shop, applied
from tests.postgres.runs import running
from tests.servers.mysql import RELEASE
from volley import SourceError

UTC_MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
# The column's type, a value as SQL has it, and as the rows have it.
BOTH: list[tuple[str, str, Any]] = [
    ("tinyint", "-128", -128),
    ("tinyint unsigned", "255", 255),
    ("boolean", "2", 2),
    ("smallint", "-32768", -32768),
    ("smallint unsigned", "65535", 65535),
    ("mediumint", "-8388608", -8388608),
    ("mediumint unsigned", "16777215", 16777215),
    ("int", "-2147483648", -2147483648),
    ("int unsigned", "4294967295", 4294967295),
    ("bigint", "-9223372036854775808", -9223372036854775808),
    ("bigint unsigned", "18446744073709551615", Decimal(18446744073709551615)),
    ("int(5) zerofill", "42", 42),
    ("float", "1.1", 1.100000023841858),
    ("float(7,3)", "-1.25", -1.25),
    ("double", "2.2250738585072014e-308", 2.2250738585072014e-308),
    ("decimal(10,2)", "-12.34", Decimal("-12.34")),
    ("decimal(5,5)", "0.00012", Decimal("0.00012")),
    ("decimal(18,0)", "-999999999999999999", Decimal("-999999999999999999")),
    ("decimal(38,10)", "1234567890123456789012345678.0123456789", Decimal("1234567890123456789012345678.0123456789")),
    ("decimal(65,30)", "-1.5", "-1.500000000000000000000000000000"),
    ("decimal(9,3) unsigned", "123456.789", Decimal("123456.789")),
    ("bit(1)", "b'1'", True),
    ("bit(10)", "b'1000000001'", b"\x02\x01"),
    ("char(5)", "'ab  '", "ab"),
    ("varchar(300)", "'größe 😀'", "größe 😀"),
    ("varchar(10) character set latin1", "'é€'", "é€"),
    ("varchar(10) character set utf16", "'é😀'", "é😀"),
    ("varchar(10) character set cp1251", "'Я'", "Я"),
    ("char(3) character set sjis", "'日本'", "日本"),
    ("text", "repeat('x', 70)", "x" * 70),
    ("mediumtext character set latin1", "repeat('é', 70000)", "é" * 70000),
    ("tinytext", "''", ""),
    ("binary(4)", "x'dead'", b"\xde\xad\0\0"),
    ("varbinary(300)", "x'dead00'", b"\xde\xad\0"),
    ("blob", "x'00ff'", b"\0\xff"),
    ("longblob", "repeat(x'00', 300)", b"\0" * 300),
    ("enum('a','b,c','it''s')", "'b,c'", "b,c"),
    ("enum('é','ü') character set latin1", "'ü'", "ü"),
    ("set('x','y','z')", "'z,x'", "x,z"),
    ("set('x','y')", "''", ""),
    ("date", "'2026-02-03'", date(2026, 2, 3)),
    ("date", "'0001-01-01'", date(1, 1, 1)),
    ("date", "'9999-12-31'", date(9999, 12, 31)),
    ("datetime", "'2026-02-03 04:05:06'", datetime(2026, 2, 3, 4, 5, 6)),
    ("datetime(3)", "'1000-01-01 00:00:00.123'", datetime(1000, 1, 1, 0, 0, 0, 123000)),
    ("datetime(6)", "'9999-12-31 23:59:59.999999'", datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ("timestamp(6) null", "'2026-01-02 03:04:05.678901'", UTC_MOMENT),
    ("timestamp null", "'1970-01-01 00:00:01'", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    ("time", "'-838:59:59'", -3020399000000),
    ("time(2)", "'-00:00:01.5'", -1500000),
    ("time(6)", "'838:59:58.999999'", 3020398999999),
    ("time(3)", "'-00:00:00.001'", -1000),
    ("year", "2026", 2026),
    ("year", "0000", 0),
    ("point", "point(1, 2)", bytes.fromhex("000000000101000000000000000000f03f0000000000000040")),
    ("varchar(10) character set latin2", "'ł'", "ł"),
]
VECTOR = ("vector(3)", "to_vector('[1, -2.5, 3e8]')", [1.0, -2.5, 3e8])
MARIADB = [
    ("time(6)", "'838:59:59.999999'", 3020399999999),
    ("uuid", "'00112233-4455-1677-8899-aabbccddee00'", "00112233-4455-1677-8899-aabbccddee00"),
    ("inet4", "'1.2.3.0'", "1.2.3.0"),
    ("inet6", "'2001:db8::ff00:42:8329'", "2001:db8::ff00:42:8329"),
    ("inet6", "'::ffff:1.2.3.4'", "::ffff:1.2.3.4"),
    ("inet6", "'::1'", "::1"),
    ("json", """'{"a": [1, null]}'""", '{"a": [1, null]}'),
    ("json", """'{"a":1}'""", '{"a":1}'),
]
MYSQL = [
    ("json", """'{"b":1, "a" :[1,null]}'""", '{"a": [1, null], "b": 1}'),
    ("json", "'null'", "null"),
    *([] if RELEASE == "8.4" else [VECTOR]),
    ("varchar(10) collate utf8mb4_0900_ai_ci", "'größe'", "größe"),
    ("varchar(10) character set gb18030", "'größe €'", "größe €"),
    ("int invisible", "7", 7),
    ("geometry srid 4326", "st_geomfromtext('point(1 2)', 4326)",
     bytes.fromhex("e6100000010100000000000000000000400000000000 00f03f".replace(" ", ""))),
]  # fmt: skip


def values_of(shop: Shop) -> list[tuple[str, str, Any]]:
    """The values of a server's types."""
    return [*BOTH, *(MYSQL if shop.is_mysql else MARIADB)]


def test_each_type_has_the_same_value_in_a_load_and_in_the_log(shop: Shop, tmp_path: Path) -> None:
    every = values_of(shop)
    columns = ", ".join(f"c{number} {declared}" for number, (declared, *_) in enumerate(every))
    values = ", ".join(f"{value}" for _, value, _ in every)
    names = ", ".join(f"c{number}" for number in range(len(every)))
    shop.run_with("set time_zone = '+00:00'", f"create table every (id int primary key, {columns})")
    shop.run_with("set time_zone = '+00:00'", f"insert into every (id, {names}) values (1, {values})")
    shop.run("insert into every (id) values (2)")
    with running(shop.source("every"), tmp_path) as run:
        loaded = {row["id"]: row for row in run.epoch()}
        start = run.start
    shop.run_with(
        "set time_zone = '+05:00'",
        f"insert into every (id, {names}) select id + 10, {names} from every",
    )
    with running(shop.source("every"), tmp_path, start) as run:
        streamed = {row["id"]: row for row in run.epoch()}
    wrong = [
        (declared, sql, want, loaded[1][f"c{number}"], streamed[11][f"c{number}"])
        for number, (declared, sql, want) in enumerate(every)
        if not loaded[1][f"c{number}"] == streamed[11][f"c{number}"] == want
    ]
    assert wrong == []
    for row in (loaded[2], streamed[12]):
        assert {row[f"c{number}"] for number in range(len(every))} == {None}


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("date", "'0000-00-00'"),
        ("date", "'2026-00-01'"),
        ("datetime", "'2026-02-00 00:00:00'"),
        ("datetime(6)", "'0000-00-00 00:00:00'"),
        ("timestamp null", "0"),
    ],
)
def test_a_date_that_is_none_is_refused_or_null(shop: Shop, tmp_path: Path, declared: str, value: str) -> None:
    shop.run(f"create table dates (id int primary key, d {declared})")
    with running(shop.source("dates"), tmp_path / "a") as run:
        assert run.epoch() == []
        start = run.start
    shop.run_with("set sql_mode = ''", f"insert into dates values (1, {value})")
    with (
        running(shop.source("dates"), tmp_path / "a", start) as run,
        pytest.raises(SourceError, match="column 'd' has"),
    ):
        run.epoch()
    with running(shop.source("dates", unrepresentable="null"), tmp_path / "a", start) as run:
        assert [row["d"] for row in run.epoch()] == [None]
    with pytest.raises(SourceError, match="column 'd' has"), running(shop.source("dates"), tmp_path / "b"):
        pass
    with running(shop.source("dates", unrepresentable="null"), tmp_path / "c") as run:
        assert [row["d"] for row in run.epoch()] == [None]


JSON = [
    *("'1'", "'-1'", "'0'", "'32767'", "'32768'", "'-32769'", "'65536'", "'4294967296'", "'-2147483649'"),
    *("'9223372036854775807'", "'9223372036854775808'", "'18446744073709551615'", "'18446744073709551616'"),
    *("'1.0'", "'-0.0'", "'0.1'", "'1e14'", "'1e15'", "'1e16'", "'123456789012345.6'", "'1.5e300'", "'-2.5e-7'"),
    *("'0.0001'", "'1e-14'", "'1e-15'", "'1e-16'", "'1.2345678901234567e-300'", "'5e-324'", "'100'", "'1e2'"),
    *("'null'", "'true'", "'[]'", "'{}'", "'[[], {}, [null, true, false]]'", "'\"\"'", "'\"größe 😀\"'"),
    """'"quote \\\\" backslash \\\\\\\\ slash / line \\\\n tab \\\\t bell \\\\u0007 \\\\u001f delete \\\\u007f"'""",
    """'{"größe": {"b": [1, 2.5, "x"], "a": null}, "": 0, "long key": "long value"}'""",
    *("json_array(repeat('x', 70000), 40000, 70000, true)", "json_object('k', repeat('y', 200), 'n', 5000000000)"),
    "json_object('a', json_array(repeat('x', 70000)), 'b', 1, 'c', 100000)",
    *("cast(1.50 as json)", "cast(cast(-12345678901234567890.0123456789 as decimal(40, 10)) as json)"),
    *("cast(cast(0.00001 as decimal(10, 5)) as json)", "cast(cast(0 as decimal(3, 0)) as json)"),
    *("cast(date'2026-01-02' as json)", "cast(timestamp'2026-01-02 03:04:05.678901' as json)"),
    *("cast(time'-12:34:56.5' as json)", "cast(time'838:59:59' as json)", "cast(cast(now(6) as datetime) as json)"),
    *("json_array(x'00ff10')", "json_array(b'101')", "json_array(cast(5 as unsigned), cast(5 as signed))"),
    "cast(st_geomfromtext('point(1 2)') as json)",
    "json_array(json_object('d', date'0001-01-01'), 1.25, cast(1.25 as double))",
]


@pytest.mark.parametrize("server", SERVERS[1:])
def test_values_of_json_print_as_the_server_prints_them(
    server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    mysql = request.getfixturevalue(server)
    shop = Shop(mysql, mysql.database())
    shop.run("create table documents (id int primary key, j json)")
    with running(shop.source("documents"), tmp_path) as run:
        run.epoch()
        start = run.start
    shop.run_with("set names utf8mb4", *(f"insert into documents values ({n}, {sql})" for n, sql in enumerate(JSON)))
    shop.run(
        "insert into documents select id + 1000, json_object('in', j, 'list', json_array(j, j)) from documents",
        "update documents set j = json_set(j, '$.in', 'short', '$.list[0]', 7) where id >= 1000",
    )
    printed = dict(shop.rows("select id, cast(j as char) from documents"))
    with running(shop.source("documents"), tmp_path, start) as run:
        streamed = applied(run.epoch())
    wrong = {key: (text, streamed[key]["j"]) for key, text in printed.items() if streamed[key]["j"] != text}
    assert wrong == {}
    with running(shop.source("documents"), tmp_path / "again") as run:
        assert {row["id"]: row["j"] for row in run.epoch()} == printed
    shop.run(f"drop database {shop.name}")
