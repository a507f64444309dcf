"""Every function of expressions: calls with what DuckDB answers, on edge values; for tests and for the reference."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import NAMESPACE_OID, NAMESPACE_URL, uuid5

import pyarrow as pa

from volley import Expr, array, coalesce, col, concat_str, greatest, least, lit, murmur3, struct, when, xxhash64

__all__ = ["CASES", "ROWS", "Case"]

_FAR = [date(1, 1, 1), date(1582, 10, 15), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31), None]
_TEXTS = ["", "  a B\t", "äÖß", "a,b,,c", "2024-02-29", None]
_TEXTS_2 = ["x", None, "ß", "a,b", "31.12.1999 23:59:59", "日本語"]
_NUMBERS = [0.0, -1.5, 2.5, float("nan"), float("inf"), None]
_INTS = [0, -7, 2**31 - 1, None, 5, -(2**31)]

ROWS = pa.table(
    {
        "s": pa.array(_TEXTS),
        "t": pa.array(_TEXTS_2),
        "x": pa.array(_NUMBERS),
        "y": pa.array([None, 3.5, 2.5, 1.0, -4.25, float("nan")]),
        "i": pa.array(_INTS, pa.int32()),
        "j": pa.array([1, -7, None, 3, 2**62, 0], pa.int64()),
        "m": pa.array(
            [Decimal("0.005"), Decimal("-2.500"), Decimal("2.500"), None, Decimal("3.500"), Decimal(-1)],
            pa.decimal128(10, 3),
        ),
        "d": pa.array(_FAR),
        "n": pa.array([each and datetime(each.year, each.month, each.day, 23, 59, 58, 123_456) for each in _FAR]),
        "z": pa.array(
            [
                *(datetime(2024, 3, 31, 0, 59, 59, tzinfo=UTC), datetime(2024, 3, 31, 1, tzinfo=UTC), None),
                *(datetime(2024, 10, 27, 1, 30, tzinfo=UTC), datetime(1, 1, 2, tzinfo=UTC)),
                datetime(9999, 12, 30, 23, 59, 59, 999_999, tzinfo=UTC),
            ]
        ),
        "g": pa.array(
            [
                *(datetime(2024, 3, 31, 1, 59), datetime(2024, 3, 31, 2, 30), datetime(2024, 3, 31, 3)),
                *(datetime(2024, 10, 27, 2, 30), None, datetime(1969, 12, 31, 23, 59, 59, 999_999)),
            ]
        ),
        "k": pa.array([time(0), time(23, 59, 59, 999_999), None, time(1, 2, 3, 4), time(12), time(6, 30)]),
        "b": pa.array([True, False, None, True, False, None]),
        "c": pa.array([" +12 ", "9223372036854775808", "-0012.5000", "1e3", None, "١"]),
        "e": pa.array(["-9223372036854775808", "12.345", ".5", "12.", "nan", "1234567.8"]),
        "f": pa.array(
            [
                *('{"a": {"b": [1, 2.50, "x"]}, "c d": true}', '{"a": null, "c d": ["ß"]}', "[1, {}]", None),
                *('{"a": "1"}', '{"a": {"b": []}}'),
            ]
        ),
        "o": pa.array([1e10, -0.0, 1.5e-5, 1e16, 123456789012.5, None]),
        "v": pa.array([["a", None, "b"], [], None, ["x"], ["", "ß", "x"], [None]]),
        "w": pa.array([[1, 2], [-7, None], [], None, [5], [2**40]]),
        "p": pa.array(
            [[("a", 1), ("b", None)], [], None, [("x", 5)], [("", -1), ("a", 2**40), ("ß", 0)], None],
            pa.map_(pa.string(), pa.int64()),
        ),
        "q": pa.array(
            [[(1, "a")], None, [(-7, None), (2**31 - 1, "")], [], None, [(0, "z")]], pa.map_(pa.int32(), pa.string())
        ),
        "r": pa.array([{"a": 1, "c": "x"}, None, {"a": None, "c": ""}, {"a": 4, "c": None}, {"a": 5, "c": "y"}, None]),
    }
)
"""Rows with nulls, empty texts, Unicode, far dates, NaN, the largest numbers."""


class Case(NamedTuple):
    """A call of a function.

    Args:
        op: The function's operation.
        expression: The call.
        sql: The same for DuckDB; "" = `values` are compared.
        values: The values.
    """

    op: str
    expression: Expr
    sql: str = ""
    values: Sequence[Any] = ()


s, t, x, y, i, j, m, d, n, k, b, p, q, r, v, w, z, g, c, e, f, o = map(col, "stxyijmdnkbpqrvwzgcefo")

# What Spark computes.
SPARK_HASHES = [
    (murmur3(s, t, i), [-53429111, -953570350, 111232271, 1880117282, 1726995968, -1253442445]),
    (murmur3(x, j, d, n, b, m), [1972149513, -1975851248, 353827608, 996382576, 393907419, -1769281173]),
    (
        murmur3(-x, x.cast("float"), z, m.cast("decimal(30,3)")),
        [-722272082, 402407443, 1049484971, -650814062, 723524808, 595348924],
    ),
    (
        xxhash64(s, t, i),
        [
            *(6213838659372808261, -1848857546032720933, -6329060560667761439),
            *(3882792635703492545, -72194646265497285, -8678892742687383649),
        ],
    ),
    (
        xxhash64(x, j, d, n, b, m),
        [
            *(2596116362111117396, 7701982930209912397, -1206033019024655806),
            *(-2175718485215650841, 4519623376717225230, -3133987877651460517),
        ],
    ),
    (
        xxhash64(concat_str(s, s, f, f, f, "0123456789abcdef"), -x, z),
        [
            *(6214266893921739153, 6637831674019653140, 8026717783919536533),
            *(-8009977167548253194, -648141120244259491, 4267858403758244884),
        ],
    ),
]

CASES = [
    Case("coalesce", coalesce(s, t, "none"), "coalesce(s, t, 'none')"),
    Case("coalesce", i.fill_null(0), "coalesce(i, 0)"),
    Case("coalesce", coalesce(r["c"], s), "coalesce(r.c, s)"),
    Case("null_if", i.null_if(-7), "nullif(i, -7)"),
    Case("null_if", x.null_if(y), "nullif(x, y)"),
    Case("when", when(b).then(i).when(i > 0).then(1).otherwise(-1), "case when b then i when i > 0 then 1 else -1 end"),
    Case("when", when(i != 0).then(j / i), "case when i <> 0 then j::double / i end"),
    Case("greatest", greatest(i, j, 2), "greatest(i, j, 2)"),
    Case("greatest", greatest(x, y), "greatest(x, y)"),
    Case("greatest", greatest(s, t), "greatest(s, t)"),
    Case(
        "greatest", greatest(z, datetime(2024, 6, 1, tzinfo=UTC)), "greatest(z, timestamptz '2024-06-01 00:00:00+00')"
    ),
    Case("least", least(i, j, 2), "least(i, j, 2)"),
    Case("least", least(x, y), "least(x, y)"),
    Case("least", least(z, datetime(2024, 6, 1, tzinfo=UTC)), "least(z, timestamptz '2024-06-01 00:00:00+00')"),
    Case("least", least(d, date(2000, 1, 1)), "least(d, date '2000-01-01')"),
    Case("is_nan", x.is_nan(), "isnan(x)"),
    Case("field", r["a"], "r.a"),
    Case("str_lower", s.str.lower(), "lower(s)"),
    Case("str_upper", t.str.upper(), "", ["X", None, "ẞ", "A,B", "31.12.1999 23:59:59", "日本語"]),
    Case("str_strip", s.str.strip(), "regexp_replace(s, '^\\s+|\\s+$', '', 'g')"),
    Case("str_strip", s.str.strip("a,"), "trim(s, 'a,')"),
    Case("str_strip_start", s.str.strip_start(" "), "ltrim(s)"),
    Case("str_strip_end", s.str.strip_end("c\t"), "rtrim(s, 'c\t')"),
    Case("str_length", t.str.length(), "length(t)"),
    Case("str_byte_length", t.str.byte_length(), "strlen(t)"),
    Case("str_slice", s.str.slice(1, 2), "substring(s, 2, 2)"),
    Case("str_slice", s.str.slice(-3), "right(s, 3)"),
    Case("str_slice", s.str.slice(-3, 2), "substring(s, -3, 2)"),
    Case("str_slice", s.str.slice(-6, 3), "substring(s, -6, 3)"),
    Case("str_replace", s.str.replace(",", "--"), "replace(s, ',', '--')"),
    Case(
        "str_replace_pattern", s.str.replace_pattern("([a-z])", r"<\1>"), r"regexp_replace(s, '([a-z])', '<\1>', 'g')"
    ),
    Case("str_matches", s.str.matches("^[0-9]{4}-"), "regexp_matches(s, '^[0-9]{4}-')"),
    Case(
        "str_extract",
        s.str.extract("(?P<y>[0-9]+)-(?P<m>[0-9]+)", "m"),
        "nullif(regexp_extract(s, '([0-9]+)-([0-9]+)', 2), '')",
    ),
    Case("str_ends_with", s.str.ends_with("c"), "ends_with(s, 'c')"),
    Case("str_split", s.str.split(","), "string_split(s, ',')"),
    Case("str_pad_start", t.str.pad_start(4, "0"), "case when length(t) < 4 then lpad(t, 4, '0') else t end"),
    Case("str_pad_end", t.str.pad_end(4), "case when length(t) < 4 then rpad(t, 4, ' ') else t end"),
    Case("str_reverse", t.str.reverse(), "reverse(t)"),
    Case("str_to_date", s.str.to_date(), "try_strptime(s, '%Y-%m-%d')::date"),
    Case("str_to_timestamp", t.str.to_timestamp("%d.%m.%Y %H:%M:%S"), "try_strptime(t, '%d.%m.%Y %H:%M:%S')"),
    Case(
        "str_to_timestamp",
        concat_str(t, lit("+0230")).str.to_timestamp("%d.%m.%Y %H:%M:%S%z"),
        "(try_strptime(t, '%d.%m.%Y %H:%M:%S') - interval '150 minutes') at time zone 'UTC'",
    ),
    Case("str_to_integer", c.str.to_integer(), "", [12, None, None, None, None, None]),
    Case("str_to_integer", e.str.to_integer(), "", [-(2**63), None, None, None, None, None]),
    Case("str_to_double", c.str.to_double(), "", [12.0, 2.0**63, -12.5, 1000.0, None, None]),
    Case("str_to_double", e.str.to_double(), "", [-(2.0**63), 12.345, 0.5, 12.0, None, 1234567.8]),
    Case("str_to_decimal", c.str.to_decimal(6, 2), "", [Decimal(12), None, Decimal("-12.50"), None, None, None]),
    Case(
        "str_to_decimal",
        e.str.to_decimal(8, 3),
        "",
        [None, Decimal("12.345"), Decimal("0.5"), Decimal(12), None, None],
    ),
    Case("str_to_decimal", lit("0.25").str.to_decimal(2, 2), "", [Decimal("0.25")] * 6),
    Case("str_json_path", f.str.json_path("$.a.b[2]"), "json_extract_string(f, '$.a.b[2]')"),
    Case("str_json_path", f.str.json_path("$.a.b[1]"), "", ["2.50", None, None, None, None, None]),
    Case("str_json_path", f.str.json_path('$["c d"]'), "", ["true", '["ß"]', None, None, None, None]),
    Case("str_json_path", f.str.json_path("$[1]"), "json_extract_string(f, '$[1]')"),
    Case("str_json_path", s.str.json_path("$.a"), "", [None] * 6),
    Case("try_cast", c.try_cast("long"), "", [12, None, None, None, None, None]),
    Case("try_cast", e.try_cast("int"), "", [None] * 6),
    Case("try_cast", e.try_cast("double"), "", [-(2.0**63), 12.345, 0.5, 12.0, float("nan"), 1234567.8]),
    Case("try_cast", c.try_cast("decimal(6,2)"), "", [Decimal(12), None, Decimal("-12.50"), None, None, None]),
    Case("try_cast", s.try_cast("date"), "try_cast(s as date)"),
    Case("try_cast", s.try_cast("timestamp_ntz"), "try_cast(s as timestamp)"),
    Case("try_cast", s.try_cast("boolean"), "try_cast(s as boolean)"),
    Case("try_cast", t.try_cast("time"), "", [None] * 6),
    Case("try_cast", x.try_cast("int"), "", [0, -1, 2, None, None, None]),
    Case("try_cast", j.try_cast("int"), "try_cast(j as int)"),
    Case("try_cast", i.try_cast("decimal(3,1)"), "try_cast(i as decimal(3, 1))"),
    Case("try_cast", m.try_cast("decimal(2,1)"), "try_cast(m as decimal(2, 1))"),
    Case("try_cast", x.try_cast("decimal(2,1)"), "try_cast(x as decimal(2, 1))"),
    Case(
        "try_cast",
        (x * 0.285).try_cast("decimal(4,2)"),
        "",
        [Decimal(0), *map(Decimal, ("-0.43", "0.71")), None, None, None],
    ),
    Case("try_cast", lit(0.285).cast("float").cast("decimal(4,2)"), "", [Decimal("0.28")] * 6),
    Case("try_cast", o.try_cast("decimal(38,38)"), "", [None, 0, Decimal("0.000015"), None, None, None]),
    Case("try_cast", lit(4.9e-30).cast("decimal(38,30)"), "", [Decimal("5e-30")] * 6),
    Case("try_cast", o.cast("decimal(30,6)"), "o::decimal(30, 6)"),
    Case("try_cast", x.try_cast("boolean"), "x <> 0"),
    Case("try_cast", m.try_cast("boolean"), "m <> 0"),
    Case("try_cast", b.try_cast("double"), "b::double"),
    Case("try_cast", b.try_cast("decimal(1,1)"), "", [None, Decimal(0), None, None, Decimal(0), None]),
    Case("try_cast", t.cast("binary").try_cast("string"), "t"),
    Case("try_cast", lit(b"\xff\x00").try_cast("string"), "", [None] * 6),
    Case("try_cast", x.cast("string").try_cast("float"), "x::float"),
    Case("try_cast", o.cast("string").cast("double"), "o"),
    *(Case("try_cast", each.try_cast("string"), f"{name}::varchar") for name, each in (("x", x), ("m", m), ("n", n))),
    *(Case("try_cast", each.try_cast("string"), f"{name}::varchar") for name, each in (("k", k), ("d", d), ("b", b))),
    Case("try_cast", (o + 0.0).try_cast("string"), "(o + 0.0)::varchar"),
    Case("try_cast", (x / 3).cast("float").try_cast("string"), "(x / 3)::float::varchar"),
    Case("try_cast", n.cast("string").try_cast("timestamp_ntz"), "n"),
    Case(
        "try_cast",
        z.cast("string").try_cast("timestamp").dt.since(datetime(2024, 1, 1, tzinfo=UTC), "microsecond"),
        "epoch_us(z) - 1704067200000000",
    ),
    Case("try_cast", k.cast("string").try_cast("time"), "k"),
    Case("concat_str", concat_str(s, t, "!", separator="+"), "s || '+' || t || '+' || '!'"),
    *(Case(f"dt_{part}", getattr(d.dt, part)(), f"{part}(d)") for part in ("year", "quarter", "month", "day")),
    Case("dt_year", n.dt.year(), "year(n)"),
    Case("dt_weekday", d.dt.weekday(), "isodow(d)"),
    Case("dt_day_of_year", d.dt.day_of_year(), "dayofyear(d)"),
    Case("dt_iso_week", d.dt.iso_week(), "week(d)"),
    *(
        Case(f"dt_{part}", getattr(of.dt, part)(), f"{part}({name})")
        for name, of in (("n", n), ("k", k))
        for part in ("hour", "minute", "second")
    ),
    Case("dt_microsecond", n.dt.microsecond(), "microsecond(n) % 1000000"),
    Case("dt_microsecond", k.dt.microsecond(), "microsecond(k) % 1000000"),
    *(
        Case("dt_truncate", n.dt.truncate(unit), f"date_trunc('{unit}', n)")
        for unit in ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")
    ),
    *(
        Case("dt_truncate", d.dt.truncate(unit), f"date_trunc('{unit}', d)::date")
        for unit in ("year", "quarter", "month", "week", "day")
    ),
    Case("dt_format", n.dt.format("%Y-%m-%d %H:%M:%S.%f"), "strftime(n, '%Y-%m-%d %H:%M:%S.%f')"),
    Case("dt_format", d.dt.format("%a %d %b %y, %j%% %%f"), "strftime(d, '%a %d %b %y, %j%% %%f')"),
    Case("dt_format", d.dt.format("%f %S %f"), "strftime(d, '%f %S %f')"),
    Case("dt_format", z.dt.format("%d.%m.%Y %I%z"), "strftime(z at time zone 'UTC', '%d.%m.%Y %I') || '+0000'"),
    Case("dt_epoch_seconds", n.dt.epoch_seconds(), "floor(epoch_us(n) / 1000000)::bigint"),
    Case("struct", struct(i=i, text=s, one=1), "{'i': i, 'text': s, 'one': 1}"),
    Case("struct", struct(inner=struct(x=d), tags=v)["inner"]["x"], "d"),
    Case("array", array(i, j, 7), "[i, j, 7]"),
    Case("array", array(s, t).list.join("-"), "array_to_string([s, t], '-')"),
    Case("dt_add", n.dt.add(hours=-1, microseconds=-1), "n - interval 1 hour - interval 1 microsecond"),
    Case("dt_add", g.cast("date") + timedelta(days=-40), "g::date - 40"),
    Case("dt_add", g - timedelta(seconds=1), "g - interval 1 second"),
    Case("dt_add_months", g.dt.add_months(-1), "g - interval 1 month"),
    Case("dt_add_months", g.dt.add_months(11), "g + interval 11 months"),
    Case("dt_add_months", g.cast("date").dt.add_months(-13), "(g::date - interval 13 months)::date"),
    Case("dt_since", n.dt.since(g, "day"), "datesub('day', g, n)"),
    Case("dt_since", z.dt.since(datetime(2024, 1, 1, tzinfo=UTC), "microsecond"), "epoch_us(z) - 1704067200000000"),
    Case("dt_since", d.dt.since(date(2000, 1, 1), "hour"), "datesub('hour', timestamp '2000-01-01', d::timestamp)"),
    Case(
        "dt_in_zone",
        z.dt.in_zone("Europe/Berlin"),
        "",
        [
            *(datetime(2024, 3, 31, 1, 59, 59), datetime(2024, 3, 31, 3), None, datetime(2024, 10, 27, 2, 30)),
            *(datetime(1, 1, 2, 0, 53, 28), datetime(9999, 12, 31, 0, 59, 59, 999_999)),
        ],
    ),
    Case(
        "dt_from_zone",
        g.dt.from_zone("Europe/Berlin"),
        "",
        [
            *(datetime(2024, 3, 31, 0, 59, tzinfo=UTC), datetime(2024, 3, 31, 1, tzinfo=UTC)),
            *(datetime(2024, 3, 31, 1, tzinfo=UTC), datetime(2024, 10, 27, 0, 30, tzinfo=UTC), None),
            datetime(1969, 12, 31, 22, 59, 59, 999_999, tzinfo=UTC),
        ],
    ),
    Case("from_epoch", i.from_epoch().dt.in_zone("UTC"), "make_timestamp(i::bigint * 1000000)"),
    Case("from_epoch", j.from_epoch("microsecond").dt.epoch_seconds(), "floor(j / 1e6)::bigint"),
    Case("list_length", v.list.length(), "len(v)"),
    Case("list_get", v.list.get(0), "v[1]"),
    Case("list_get", w.list.get(-1), "w[-1]"),
    Case("list_get", w.list.get(1), "w[2]"),
    Case("list_contains", v.list.contains("x"), "list_contains(v, 'x') or if(list_count(v) < len(v), null, false)"),
    Case("list_contains", w.list.contains(-7), "list_contains(w, -7) or if(list_count(w) < len(w), null, false)"),
    Case("list_join", v.list.join("+"), "", ["a+b", "", None, "x", "+ß+x", ""]),
    Case("map_length", p.map.length(), "cardinality(p)::int"),
    Case("map_keys", p.map.keys(), "map_keys(p)"),
    Case("map_values", q.map.values(), "map_values(q)"),
    Case("map_get", p.map.get("a"), "", [1, None, None, None, 2**40, None]),
    Case("map_get", q.map.get(-7), "", [None] * 6),
    Case("map_get", q.map.get(0), "", [None, None, None, None, None, "z"]),
    Case("map_contains", p.map.contains("ß"), "map_contains(p, 'ß')"),
    Case("map_contains", q.map.contains(-7), "map_contains(q, -7)"),
    Case("md5", s.md5(), "md5(s)"),
    Case("sha256", t.sha256(), "sha256(t)"),
    Case("uuid5", s.uuid5(), "", [None if each is None else uuid5(NAMESPACE_OID, each) for each in _TEXTS]),
    Case(
        "uuid5",
        t.uuid5("url").cast("string"),
        "",
        [None if each is None else str(uuid5(NAMESPACE_URL, each)) for each in _TEXTS_2],
    ),
    *(
        Case(op, expression, "", hashes)
        for op, (expression, hashes) in zip(["murmur3"] * 3 + ["xxhash64"] * 3, SPARK_HASHES, strict=True)
    ),
    Case("abs", x.abs(), "abs(x)"),
    Case("abs", j.abs(), "abs(j)"),
    Case("abs", m.abs(), "abs(m)"),
    Case("sign", x.sign(), "sign(x)"),
    Case("sign", m.sign(), "sign(m)"),
    Case("floor", x.floor(), "floor(x)"),
    Case("floor", m.floor(), "floor(m)::decimal(8, 0)"),
    Case("ceil", x.ceil(), "ceil(x)"),
    Case("round", x.round(), "round(x)"),
    Case("round", m.round(2), "round(m, 2)::decimal(10, 2)"),
    Case("round", x.round(0, "half_even"), "round_even(x, 0)"),
    Case("round", i.round(2), "i"),
    Case("sqrt", y.sqrt(), "", [None, 3.5**0.5, 2.5**0.5, 1.0, float("nan"), float("nan")]),
    Case("exp", y.exp(), "exp(y)"),
    Case("ln", y.ln(), "case when y < 0 then 'nan'::double else ln(y) end"),
    Case("log10", y.log10(), "case when y < 0 then 'nan'::double else log10(y) end"),
    Case("power", y.power(2), "power(y, 2)"),
    Case("int_div", i.int_div(4), "i // 4"),
    Case("int_div", i.int_div(-4) * -4 + i % -4, "i"),
    Case("int_div", lit(7).int_div(j.null_if(0)), "7 // nullif(j, 0)"),
    Case("bit_and", i.bit_and(j), "i & j"),
    Case("bit_or", i.bit_or(j), "i | j"),
    Case("bit_xor", i.bit_xor(5), "xor(i, 5)"),
    Case("bit_not", j.bit_not(), "~j"),
    Case("shift_left", i.bit_and(255).shift_left(3), "(i & 255) << 3"),
    Case("shift_right", j.shift_right(2), "j >> 2"),
]
