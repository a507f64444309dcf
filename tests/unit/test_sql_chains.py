"""Long chains in SQL texts, as programs write them: they have the right rows, and no limit of Python's frames."""

from __future__ import annotations

from typing import Any

import pytest

from volley import Environment, ExpressionError, MemorySource, sql

LENGTH = 400
ROWS = [{"a": number, "s": str(number)} for number in range(20)]
EVEN, ODD = list(range(0, 20, 2)), list(range(1, 20, 2))

CONDITIONS = {
    "or": (" or ".join(f"a = {2 * number}" for number in range(LENGTH)), EVEN),
    "and": (" and ".join(f"a <> {2 * number}" for number in range(LENGTH)), ODD),
    "and within or": (" or ".join(f"a = {2 * n} and s <> '{n}'" for n in range(LENGTH)), EVEN[1:]),
    "or in parentheses": (" and ".join(f"(a <> {2 * n} or a = 0)" for n in range(LENGTH)), [0, *ODD]),
    "in": (f"a in ({', '.join(str(2 * number) for number in range(10_000))})", EVEN),
    "not in": (f"a not in ({', '.join(str(2 * number) for number in range(10_000))})", ODD),
    "case": (f"case {' '.join(f'when a = {n} then {n % 2 == 0}' for n in range(LENGTH))} else false end", EVEN),
    "a short sum": (" + ".join(["a"] * 100) + " = 300", [3]),
    "operators of several kinds": ("a - 1 - 2 + 3 * 2 - a % 2 = 5 or a = 1 or a = 0 and s = '1'", [1, 2, 3]),
}


def rows_of(condition: str) -> list[Any]:
    rows: list[Any] = Environment().from_source(MemorySource(ROWS)).filter(sql(condition)).to_arrow()["a"].to_pylist()
    return rows


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_long_chain_has_the_right_rows(name: str) -> None:
    condition, expected = CONDITIONS[name]
    assert rows_of(condition) == expected


def test_a_long_sum_is_refused_with_the_way_out() -> None:
    with pytest.raises(ExpressionError, match="more than 150 calls within each other") as caught:
        sql(" + ".join(["a"] * LENGTH))
    assert "add many columns in parts" in str(caught.value.hint)


def test_a_mistake_within_a_chain_names_its_place() -> None:
    with pytest.raises(ExpressionError, match=r"no function 'nope'.* in line 1, column 10"):
        sql("a = 1 or nope(a) or a = 2")
