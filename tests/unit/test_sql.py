"""Expressions from SQL text: the same as by methods, with DuckDB's values; mistakes with their place."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.duck import query
from tests.unit.functions import ROWS
from tests.unit.test_functions import same, values_of
from volley import Expr, ExpressionError, coalesce, col, concat_str, lit, sql, when

SAME_AS_DUCKDB = [
    "i - j / 2 > 5 and s <> ''",
    "i > 0 or b",
    "not b and i is not null",
    "b is true",
    "b is not false",
    "b is not distinct from (i > 0)",
    "i is distinct from 5",
    "s in ('', 'äÖß') or i in (5, -7)",
    "i not in (5, 0)",
    "i in (0, j)",
    "i in (5, null)",
    "i between -7 and 5",
    "i not between -7 and 5",
    "-j",
    "i % 3",
    "i / 2",
    "x * 1.5 - y",
    "s like 'a%'",
    "s like '%b%'",
    "s like '%b'",
    "s not like 'a_b%'",
    "s like 'a,b,,c'",
    "s ilike 'A,%C'",
    "t like '%.12.%' or t not ilike 'X'",
    r"s like '2024!-__-29' escape '!'",
    "case when i > 0 then 'more' when i < 0 then 'less' end",
    "case i when 0 then 'none' when 5 then 'five' else t end",
    "if(i > 0, j, -1)",
    "coalesce(s, t, 'none')",
    "ifnull(i, 0)",
    "nullif(i, -7)",
    "greatest(i, j, 2)",
    "s || '+' || t",
    "lower(s)",
    "trim(s)",
    "trim(both 'a,' from s)",
    "trim(leading ' ' from s)",
    "rtrim(s, 'c\t')",
    "length(t)",
    "octet_length(encode(t))",
    "substring(s, 2, 3)",
    "substring(s from 2 for 3)",
    "substr(s, -3)",
    "left(s, 2)",
    "replace(s, ',', '--')",
    "starts_with(s, '20')",
    "reverse(t)",
    "extract(year from d)",
    "extract(doy from d) + extract(isodow from d)",
    "year(d) * 100 + month(d)",
    "hour(n) = 23",
    "d >= date '1970-01-01'",
    "n < timestamp_ntz '2000-01-01 00:00:00'",
    "k < time '12:00:00'",
    "m + decimal '0.5'",
    "cast(i as bigint) * 2",
    "i::double",
    "cast(m as decimal(12, 1))",
    "cast(i as varchar)",
    "cast(n as varchar)",
    "try_cast(s as date)",
    "strftime(d, '%d.%m.%Y')",
    "abs(m)",
    "round(x)",
    "floor(y) + ceil(y)",
    "sqrt(abs(j))",
    "power(i, 2)",
    "r.a",
    "r['c'] = 'x'",
    "array_length(v)",
    "array_contains(w, 2)",
    "((j)) % 7 * 2 - -3",
    "true and b",
    "null is null",
    "b = (i is null)",
    "(b = b) is null",
    "i notnull",
    "\"s\" = '' -- a comment",
]
_IN_DUCKDB = {
    "i / 2": "i::double / 2",
    "i - j / 2 > 5 and s <> ''": "i - j::double / 2 > 5 and s <> ''",
    "octet_length(encode(t))": "strlen(t)",
    "array_length(v)": "len(v)",
    "array_contains(w, 2)": "list_contains(w, 2) or if(list_count(w) < len(w), null, false)",
    "n < timestamp_ntz '2000-01-01 00:00:00'": "n < timestamp '2000-01-01 00:00:00'",
    # Half away from zero, as in Spark.
    "cast(m as decimal(12, 1))": "round(m, 1)::decimal(12, 1)",
    "array_length(v) ": "len(v)",
}
_HERE = {"octet_length(encode(t))": "octet_length(t)", "rtrim(s, 'c\t')": "rtrim('c\t', s)"}


@pytest.mark.parametrize("text", SAME_AS_DUCKDB)
def test_values_are_those_of_duckdb(text: str) -> None:
    expected = query(f"select ({_IN_DUCKDB.get(text, text)}\n) from rows", rows=ROWS).fetchall()
    found = values_of(sql(_HERE.get(text, text)))
    assert [pair for pair in zip(found, (value for (value,) in expected), strict=True) if not same(*pair)] == []


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("price * 1.2 > 10 and status in ('a', 'b')", (col("price") * 1.2 > 10) & col("status").is_in("a", "b")),
        ('"Unit price" as price', col("Unit price").alias("price")),
        ("lower(trim(name)) like 'a%'", col("name").str.strip(" ").str.lower().str.starts_with("a")),
        ("Status <=> 'x'", ~when(col("Status").is_null() | lit("x").is_null())
            .then(col("Status").is_null() != lit("x").is_null()).otherwise(col("Status") != "x")),
        ("COALESCE(a.b.c, 1)", coalesce(col("a")["b"]["c"], 1)),
        ("a.b.c.d.e.f", col("a")["b"]["c"]["d"]["e"]["f"]),
        ("a is not nan", ~col("a").is_nan().fill_null(False)),
        ("a = uuid 'ABCDEF00-0000-0000-0000-000000000001'", col("a") == "abcdef00-0000-0000-0000-000000000001"),
        ("concat(a, 'x')", concat_str(col("a"), "x")),
        ("timestamp '2024-01-01 10:00:00'", lit(datetime(2024, 1, 1, 10, tzinfo=UTC))),
        ("timestamp_ntz '2024-01-01T10:00:00.5'", lit(datetime(2024, 1, 1, 10, 0, 0, 500_000))),
        ("date '2024-02-29'", lit(date(2024, 2, 29))),
        ("time '23:59'", lit(time(23, 59))),
        ("decimal '1.10'", lit(Decimal("1.10"))),
        ("date_trunc('hour', at)", col("at").dt.truncate("hour")),
        ("cast(id as text)", col("id").cast("string")),
        ("1e3", lit(1000.0)),
        ("name like 'it''s'", col("name") == "it's"),
        ("name like ''", col("name") == ""),
        ("comment = 'x'", col("comment") == "x"),
    ],
)  # fmt: skip
def test_a_text_is_the_expression_that_methods_build(text: str, expression: Expr) -> None:
    assert sql(text).node == expression.node


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("lwer(a)", "there is no function 'lwer' in line 1, column 1\nlwer(a)\n^", "did you mean 'lower'"),
        ("a +\n  length(b, c)", "length got 2 arguments in line 2, column 3\n  length(b, c)\n  ^", "length(text)"),
        ("a =", "something is missing after '=' in line 1, column 3\na =\n  ^", "one expression"),
        ("a = 1; drop table t", "unexpected 'drop' in line 1, column 8", "one expression"),
        ("select 1", "unexpected 'select' in line 1, column 1", "one expression"),
        ("", "the SQL text is empty", "price > 10"),
        ("a; b", "has several expressions", "leave ; out"),
        ("name = 'abc", "can't be read", "ends with '"),
        ("count(*)", "there is no function 'count'", "known: "),
        ("sum(x) over ()", "WINDOW is not an expression", "QUALIFY"),
        ("a in (select 1)", "IN takes no query", "leave query out"),
        ("(select 1)", "SUBQUERY is not an expression", ""),
        ("*", "STAR is not an expression", ""),
        ("t.*", "* is not an expression", "name the columns"),
        ("interval '1 day'", "INTERVAL is not an expression", ""),
        ("at + interval '1.5' day", "the interval can't be read", "units are year, month"),
        ("at * interval '1' day", "the interval can't be read", ""),
        ("a between symmetric 1 and 2", "BETWEEN takes no symmetric", "leave symmetric out"),
        ("cast(a as foo)", "unknown type 'foo'", "known: "),
        ("cast(a as array<int>)", "casts to lists", "cast their parts"),
        ("date '2024-13-01'", "'2024-13-01' is no date in line 1, column 6", "date '2024-01-31'"),
        ("timestamp_ntz '2024-01-01 00:00:00+01:00'", "is no timestamp_ntz", ""),
        ("extract(years from d)", "EXTRACT has no part 'years'", "did you mean 'year'"),
        ("substring(a, 0)", "substring starts at 0 in line 1, column 11", "first character"),
        ("name like pattern", "like col('pattern')", "constant text"),
        ("name like 'a!' escape '!'", "ends with the escape character", "twice"),
        ("replace(a, b, 'x')", "part is col('b')", "constant"),
        ("tags[1]", "[1] is no field", "in quotes"),
        ("a is 5", "IS is followed by", "compare other values"),
        ("a = b is null", "ambiguous in line 1, column 1", "parentheses"),
        ("a is null = b", "ambiguous", "parentheses"),
        ("x > 1_000", "unexpected '_000' in line 1, column 6\nx > 1_000\n     ^", "one expression"),
        ("0xFF", "unexpected 'xFF' in line 1, column 2", "one expression"),
        ("0b11", "unexpected 'b11' in line 1, column 2", "one expression"),
        ("5L", "unexpected 'L' in line 1, column 2", "one expression"),
        ("10 usd", "unexpected 'usd' in line 1, column 4", "one expression"),
        ("price gross", "unexpected 'gross' in line 1, column 7", "one expression"),
        ("x > 1.5e", "'1.5e' is no number", "1e3"),
        ("x = " + "9" * 5000, "is no number", "1e3"),
        ("x > 1e400", "no double holds 1e400", "1.7976931348623157e308"),
        ("x = -true", "- stands before True", "before a number"),
        ("-'5'", "- stands before '5'", "before a number"),
        ("a = b not in (1, 2)", "ambiguous", "parentheses"),
        ("(" * 1_100 + "a" + ")" * 1_100, "nested too deeply", "columns"),
        (
            "ltrim(a, 'x')",
            "ltrim takes the characters, a constant text, before the text",
            "trim(leading 'x' from name)",
        ),
        ("rtrim(a, b)", "rtrim takes the characters, a constant text, before the text", "trim(trailing"),
        ("ltrim()", "ltrim got 0 arguments", "ltrim(characters, text)"),
        ("split_part(a, ',', 0)", "split_part takes part 0", "1 is the first part, -1 the last"),
        ("get(split(a, ','), -1)", "get takes the item at -1", "0 is the first item"),
        ("regexp_extract(a, '(x)(y)', 3)", "regexp_extract takes group 3 of '(x)(y)'", "0 is all that matches"),
        ("regexp_extract(a, '[(]')", "regexp_extract takes group 1 of '[(]'", "groups count from 1"),
        ("regexp_extract(a, '(?<n>x)', 1)", "regexp_extract takes the pattern '(?<n>x)'", "groups are numbered"),
        *(
            (
                f"date_format(a, '{letters}')",
                f"date_format takes the format '{letters}'",
                "other letters stand in quotes",
            )
            for letters in ("yy", "yyyy-MMM", "hh:mm", "%Y[", "#")
        ),
        *(
            (f"split(a, '{pattern}')", "split takes a text, not the pattern", "[.]")
            for pattern in (".", "|", "a+", "\\d")
        ),
        *(
            (f"regexp_replace(a, '(x)', '{other}')", f"puts '{other}' in", "$1 to $9 are the groups")
            for other in ("$", "$x", "${name}", "a$12")
        ),
    ],
)
def test_mistakes_have_their_place_and_a_way_out(text: str, message: str, hint: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        sql(text)
    assert message in raised.value.message
    assert hint in (raised.value.hint or "")


def test_texts_are_replaced_split_and_trimmed_as_in_spark() -> None:
    rows = pa.table({"s": ["xxaxx", "2026-01", "a.b|c", None, "ABC"]})
    for text, expected in {
        r"regexp_replace(s, '(\d+)-(\d+)', '$2/$1')": ["xxaxx", "01/2026", "a.b|c", None, "ABC"],
        "regexp_replace(s, 'a', '<$0>')": ["xx<a>xx", "2026-01", "<a>.b|c", None, "ABC"],
        r"regexp_replace(s, '(a)', '\$1\q')": ["xx$1qxx", "2026-01", "$1q.b|c", None, "ABC"],
        r"regexp_replace(s, '(a)', '\1\1')": ["xxaaxx", "2026-01", "aa.b|c", None, "ABC"],
        "split(s, '[.]')": [["xxaxx"], ["2026-01"], ["a", "b|c"], None, ["ABC"]],
        r"split(s, '\|')": [["xxaxx"], ["2026-01"], ["a.b", "c"], None, ["ABC"]],
        "split(s, '-')": [["xxaxx"], ["2026", "01"], ["a.b|c"], None, ["ABC"]],
        "ltrim('x', s)": ["axx", "2026-01", "a.b|c", None, "ABC"],
        "rtrim('xa', s)": ["", "2026-01", "a.b|c", None, "ABC"],
        "ltrim('  a ')": ["a "] * 5,
        "ltrim('x', null)": [None] * 5,
        "trim(leading 'x' from s)": ["axx", "2026-01", "a.b|c", None, "ABC"],
        "btrim(s, 'x')": ["a", "2026-01", "a.b|c", None, "ABC"],
        "substr(s, -4, 2)": ["xa", "6-", ".b", None, "A"],
        "substring(s from -7 for 4)": ["xx", "2026", "a.", None, ""],
    }.items():
        assert values_of(sql(text), rows) == expected, text


def test_a_group_that_a_pattern_does_not_have_is_refused() -> None:
    with pytest.raises(ExpressionError, match="Invalid replacement"):
        values_of(sql("regexp_replace(s, 'a', '$1')"))


def test_times_of_texts_without_a_format_are_in_iso_8601() -> None:
    at = datetime(2026, 1, 5, 10, tzinfo=UTC)
    texts = ["2026-01-05T10:00:00", "2026-01-05 10:00:00.5", "2026-01-05T15:30:00+05:30", "2026-01-05", None]
    expected = [at, at.replace(microsecond=500_000), at, at.replace(hour=0), None]
    assert values_of(sql("to_timestamp(s)"), pa.table({"s": texts})) == expected
    assert values_of(sql("to_date(s)"), pa.table({"s": ["2024-02-29", None]})) == [date(2024, 2, 29), None]
    for text in ("10:00 on Monday", "2026-02-30", "2026-01-05 10:00:60", ""):
        with pytest.raises(ExpressionError, match="cast from string to timestamp"):
            values_of(sql("to_timestamp(s)"), pa.table({"s": ["2026-01-05", text, None, "2026-01-05"]}))
        with pytest.raises(ExpressionError, match="cast from string to date"):
            values_of(sql("to_date(s)"), pa.table({"s": ["2026-01-05", text, None, "2026-01-05"]}))
    assert values_of(sql("to_date(s, '%d.%m.%Y')"), pa.table({"s": ["31.12.2026", "x"]})) == [date(2026, 12, 31), None]


_LIKE = st.text("ab%_!\\.", max_size=6)


@given(st.lists(st.none() | st.text("ab%_!\\.\nA", max_size=6), min_size=1), _LIKE, st.sampled_from(["like", "ilike"]))
def test_like_is_that_of_duckdb(texts: list[str | None], pattern: str, operator: str) -> None:
    rows = pa.table({"s": pa.array(texts, pa.string())})
    text = f"s {operator} '{pattern}'"
    assert values_of(sql(text), rows) == [value for (value,) in query(f"select {text} from rows", rows=rows).fetchall()]


_NAMES = st.sampled_from(["p", "q", "r"])
_TERMS = st.recursive(
    _NAMES | st.sampled_from(["null", "true", "false", "n > 1", "n is null", "n in (1, null)", "n between 0 and 1"]),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})")
        | inner.map(lambda term: f"(not {term})")
        | inner.map(lambda term: f"(({term}) is not true)")
        | st.tuples(inner, inner, inner).map(lambda parts: "(case when {} then {} else {} end)".format(*parts))
    ),
    max_leaves=8,
)
_TRUTHS = [None, True, False]
_TABLE = pa.table(
    {
        "p": pa.array([p for p in _TRUTHS for _ in _TRUTHS for _ in _TRUTHS], pa.bool_()),
        "q": pa.array([q for _ in _TRUTHS for q in _TRUTHS for _ in _TRUTHS], pa.bool_()),
        "r": pa.array([r for _ in _TRUTHS for _ in _TRUTHS for r in _TRUTHS], pa.bool_()),
        "n": pa.array([None, 0, 1, 2, 3, None, 1, 0, 2] * 3, pa.int64()),
    }
)


@given(_TERMS)
def test_conditions_are_those_of_duckdb(text: str) -> None:
    expected = [value for (value,) in query(f"select ({text}) is true from rows", rows=_TABLE).fetchall()]
    assert values_of(sql(f"({text}) is true"), _TABLE) == expected


_WORDS = """a b ( ) , . + - * / % = < > ' " [ ] : ; ? @ $ # ! | & ^ ~ é 1 2.5 1e3 and or not in is null true like ilike
escape between case when then else end cast as int date interval if distinct from select extract year trim both
substring over filter any exists array struct count"""
_TOKENS = st.sampled_from([*_WORDS.split(), "\n", "\r", "\u2028"])


@given(st.lists(_TOKENS, max_size=12).map(" ".join) | st.text(max_size=20))
def test_any_text_is_an_expression_or_a_mistake(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        assert isinstance(sql(text), Expr)
