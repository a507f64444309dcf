"""Texts for `sql`: the same in Spark, or with what Spark has in the place of a function that it does not know."""

from __future__ import annotations

from collections.abc import Iterator

from tests.unit.beside_spark.case import SparkCase
from volley import sql

__all__ = ["SQL_TEXTS"]

_SAME: dict[str, dict[str, tuple[str, ...]]] = {
    "texts": {
        "coalesce": ("coalesce(s, t, 'none')",),
        "ifnull": ("ifnull(s, t)",),
        "nvl": ("nvl(s, t)",),
        "nullif": ("nullif(s, t)",),
        "greatest": ("greatest(s, t)",),
        "least": ("least(s, t)",),
        "concat": ("concat(s, t)",),
        "lower": ("lower(s)",),
        "upper": ("upper(s)",),
        "ltrim": ("ltrim(s)", "ltrim('xa', s)"),
        "rtrim": ("rtrim(s)", "rtrim('xa', s)"),
        "btrim": ("btrim(s)", "btrim(s, 'xa')"),
        "trim": ("trim(s)", "trim(both 'xa' from s)", "trim(leading from s)", "trim(trailing 'c' from s)"),
        "length": ("length(s)",),
        "char_length": ("char_length(s)",),
        "octet_length": ("octet_length(s)",),
        "substr": ("substr(s, 1, 2)", "substr(s, 2)", "substr(s, -2)", "substr(s, -4, 2)"),
        "substring": ("substring(s, 2)", "substring(s, -2, 1)", "substring(s from 2 for 1)"),
        "left": ("left(s, 2)", "left(s, 0)"),
        "replace": ("replace(s, 'a', '-')",),
        "regexp_replace": (
            "regexp_replace(s, '(a)', '<$1>')",
            "regexp_replace(s, '[.]', '-')",
            "regexp_replace(s, 'a', 'b')",
        ),
        "regexp_like": ("regexp_like(s, '^a')",),
        "rlike": ("s rlike 'a'",),
        "contains": ("contains(s, 'a')",),
        "regexp_extract": (
            "regexp_extract(s, '(&|^)([^,]*)', 2)",
            "regexp_extract(s, '([0-9]+)-([0-9]+)')",
            "regexp_extract(s, 'a[(]?(x)?', 1)",
            "regexp_extract(s, '(?:a|b)+', 0)",
        ),
        "split_part": ("split_part(s, ',', 1)", "split_part(s, '.', 2)", "split_part(s, ',', -1)"),
        "get": ("get(split(s, ','), 1)",),
        "split": ("split(s, ',')", "split(s, '[.]')", "split(s, '[|]')"),
        "reverse": ("reverse(s)",),
        "md5": ("md5(s)",),
        "hash": ("hash(s, t)",),
        "xxhash64": ("xxhash64(s, t)",),
        "array_join": ("array_join(split(s, ','), '+')",),
        "like": ("s like 'a%'", "s like 'a_b'", "s like '%,%'", "s not like '%a%'", "s like '%!%!_' escape '!'"),
        "ilike": ("s ilike 'A%'", "s ilike '%SS'", "s ilike 'A_C'", "s ilike 'ασ'"),
        "||": ("s || t", "s || null"),
        "=": ("s = t", "s <> t", "s = 'it''s'"),
        "<": ("s < t", "s >= t"),
        "is distinct from": ("s is distinct from t", "s is not distinct from t", "s <=> t"),
        "in": ("s in ('a', null)", "s not in ('a', 'ABC')"),
        "between": ("s between 'a' and 'b'",),
        "case": ("case s when 'a' then 1 else 2 end",),
        "if": ("if(s = 'a', 1, 2)",),
        "is null": ("s is null", "s is not null"),
    },
    "ints": {
        "+": ("i + j", "i + 2147483648"),
        "-": ("i - j", "-i"),
        "*": ("i * j",),
        "/": ("i / j", "5 / 2"),
        "%": ("i % j", "- i % 3", "1 - i % 3 * 2"),
        "mod": ("mod(i, j)",),
        "number with a point": ("i * 1.10", "i + 0.1", "i > 1.5", "0.1 + 0.2 = 0.3", "hash(1.5)", "coalesce(i, 0.5)"),
        "abs": ("abs(i)",),
        "sign": ("sign(i)",),
        "floor": ("floor(i)",),
        "ceil": ("ceil(i)",),
        "ceiling": ("ceiling(i)",),
        "round": ("round(i)",),
        "hash": ("hash(i)", "hash(1)"),
        "in": ("i in (7, null)", "i not in (7, j)"),
        "between": ("i between j and 10", "i not between 0 and 7"),
        "case": ("case when i > 0 then 1 when i < 0 then -1 end",),
        "not": ("not i = 1",),
        "cast": ("cast(i as string)", "i::bigint", "i::decimal(3,0)"),
    },
    "doubles": {
        "round": ("round(x, 2)", "round(x)"),
        "floor": ("floor(x)",),
        "ceil": ("ceil(x)",),
        "ceiling": ("ceiling(x)",),
        "sign": ("sign(x)",),
        "abs": ("abs(x)",),
        "sqrt": ("sqrt(x)",),
        "exp": ("exp(x)",),
        "ln": ("ln(x)",),
        "log10": ("log10(x)",),
        "power": ("power(x, 0.5)", "power(x, y)"),
        "=": ("x = y", "x = 0", "x = 1e23", "x = 0.1"),
        "<": ("x < y", "x > 0.1"),
        "greatest": ("greatest(x, y)",),
        "least": ("least(x, y)",),
        "nullif": ("nullif(x, y)",),
        "cast": ("cast(x as string)", "x::float"),
    },
    "decimals": {
        "+": ("m + o", "m + 1"),
        "*": ("m * o", "m * 2"),
        "/": ("m / o",),
        "number with a point": ("m > 1.5", "m = 1.5", "m + 0.5", "m * 1.10"),
        "round": ("round(m, 1)", "round(m)"),
        "floor": ("floor(m)",),
        "ceil": ("ceil(m)",),
        "in": ("m in (1.5, 2.5)",),
        "cast": ("cast(m as decimal(5,1))", "m::double"),
    },
    "dates": {
        "year": ("year(d)", "extract(year from d)"),
        "quarter": ("quarter(d)", "extract(quarter from d)"),
        "month": ("month(d)", "extract(month from d)"),
        "week": ("extract(week from d)",),
        "day": ("day(d)", "extract(day from d)"),
        "doy": ("extract(doy from d)",),
        "date_trunc": ("date_trunc('month', d)", "date_trunc('week', d)"),
        "date '…'": ("d = date '2026-01-31'", "d between date '2000-01-01' and date '2026-12-31'"),
        "greatest": ("greatest(d, e)",),
        "date_format": ("date_format(d, 'yyyy.MM.dd 100%')",),
    },
    "instants": {
        "hour": ("hour(z)", "extract(hour from z)"),
        "date_format": (
            "date_format(z, 'yyyy-MM-dd')",
            "date_format(z, 'HH:mm:ss.SSSSSS')",
            "date_format(z, 'yyyyMMdd''T''HH')",
        ),
        "minute": ("minute(z)", "extract(minute from z)"),
        "second": ("second(z)", "extract(second from z)"),
        "date_trunc": ("date_trunc('day', z)", "date_trunc('week', z)", "date_trunc('millisecond', z)"),
        "greatest": ("greatest(z, a)",),
        "least": ("least(z, a)",),
        "cast": ("z::date", "cast(z as string)", "cast(z as timestamp_ntz)"),
        "timestamp '…'": (
            "z = timestamp '2026-01-31 11:00:00+01:00'",
            "z = timestamp '2026-01-31 10:00:00'",
            "z < timestamp '2026-01-31'",
        ),
    },
    "clocks": {
        "hour": ("hour(z)",),
        "date_trunc": ("date_trunc('hour', z)",),
        "timestamp_ntz '…'": ("z = timestamp_ntz '2026-01-31 10:00:00'",),
    },
    "times": {
        "hour": ("hour(k)",),
        "second": ("second(k)", "extract(second from k)"),
        "time '…'": ("k = time '10:20:30'", "k < time '12:00:00'"),
    },
    "numbers in texts": {"try_cast": ("try_cast(c as double)", "try_cast(c as int)")},
    "dates in texts": {"to_date": ("to_date(c)",), "try_cast": ("try_cast(c as date)",)},
    "moments in texts": {"to_timestamp": ("to_timestamp(c)",)},
    "lists": {
        "array_contains": ("array_contains(v, 2)", "array_contains(w, 'a')"),
        "array_join": ("array_join(w, '+')", "array_join(w, ',')"),
    },
    "structs": {"a.b": ("r.a", "r['b']", "r.a + 1", "r is null", "r.a is null")},
    "truths": {
        "and": ("b and c", "b and null"),
        "or": ("b or c",),
        "not": ("not b",),
        "=": ("b = c", "b <> c", "b > c"),
        "is true": ("b is true", "b is not true", "b is false"),
        "is distinct from": ("b is distinct from c",),
        "if": ("if(b, 1, 0)",),
        "cast": ("cast(b as int)", "b::string"),
    },
    "bytes": {"octet_length": ("octet_length(y)",), "hash": ("hash(y)",)},
}

_OTHERWISE = {
    "texts": {
        "starts_with": ("starts_with(s, 'a')", "startswith(s, 'a')"),
        "ends_with": ("ends_with(s, 'c')", "endswith(s, 'c')"),
        "like": (r"s like '%\%'", r"s like r'%\%'"),
        "sha256": ("sha256(s)", "sha2(s, 256)"),
    },
    "doubles": {"is_nan": ("is_nan(x)", "isnan(x)")},
    "dates": {
        "week": ("week(d)", "weekofyear(d)"),
        "isodow": ("isodow(d)", "extract(dayofweek_iso from d)"),
        "doy": ("doy(d)", "dayofyear(d)"),
    },
    "dates in texts": {"to_date": ("to_date(c, '%Y-%m-%d')", "try_to_date(c, 'yyyy-MM-dd')")},
    "instants": {
        "epoch": ("epoch(z)", "unix_seconds(z)"),
        "strftime": ("strftime(z, '%Y-%m-%d')", "date_format(z, 'yyyy-MM-dd')"),
    },
    "lists": {"array_length": ("array_length(v)", "size(v)")},
    "documents": {"json_path": ("json_path(f, '$.a')", "get_json_object(f, '$.a')")},
}


def _all() -> Iterator[SparkCase]:
    for rows, texts in _SAME.items():
        for name, same in texts.items():
            yield from (SparkCase(rows, f"sql {name}", sql(text), text) for text in same)
    for rows, pairs in _OTHERWISE.items():
        for name, (text, spark) in pairs.items():
            yield SparkCase(rows, f"sql {name}", sql(text), spark)


SQL_TEXTS = list(_all())
"""The calls that the texts are."""
