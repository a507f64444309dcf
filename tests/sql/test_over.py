"""OVER and QUALIFY in SQL: rows as DuckDB has them; jobs are in tests/end_to_end/test_over.py."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.duck import query
from tests.end_to_end.test_updates import random_rows
from volley import Environment, ExpressionError

# Where nulls stand in an order is said, as DuckDB has them last.
QUERIES = [
    """select t, row_number() over (partition by k order by v desc nulls last, t) as n, lag(t, 2) over (order by t) as l
        from r""",
    "select t, k from r qualify row_number() over (partition by k order by v desc nulls last, t) = 1",
    "select t, rank() over (partition by k, v + 1 order by m nulls first) as p from r qualify p <= 2",
    """select t, dense_rank() over (order by v nulls last) as a, dense_rank() over (order by v desc nulls first) as b
        from r""",
    "select k, sum(v) as s, rank() over (order by sum(v) desc nulls last) as p from r group by k",
    "select k, v, sum(sum(v)) over (partition by k order by v nulls first) as s from r group by k, v qualify s > 1",
    "select * from (select t, k, row_number() over (partition by k order by t) as n from r) q where n <= 3",
    """select t, sum(m) over (partition by k order by t rows between 2 preceding and 1 following) as s,
        count(*) over () as c, max(v) over (partition by k order by t range between unbounded preceding and
        unbounded following) as x, avg(v) over (partition by k) as a from r""",
    "select t, v - lag(v) over (partition by k order by t) as d, lead(v) over (order by t) as n from r where v > -2",
    "select distinct k, count(v) over (partition by k) as n from r",
    "select t, sum(v) filter (where v > 1) over (partition by k order by t) as s from r",
    "select t from r order by row_number() over (order by t desc) limit 3",
    "select t from r limit 0",
    "select t, k from r order by t limit 0",
    "select t, sum(v) over (order by t rows unbounded preceding) as s from r qualify s > 3 and k = 'a'",
    """select t, first_value(v) over (partition by k order by t) as f, last_value(v) over (order by t) as l,
        last_value(v) over (partition by k order by t rows between 1 preceding and 2 following) as m from r""",
    """select t, first_value(v ignore nulls) over (order by t desc) as f, last_value(v ignore nulls) over (
        partition by k order by t rows between 2 preceding and current row) as l,
        first_value(v respect nulls) over (order by t) as n from r""",
    "select t, lag(v, 2, -1) over (partition by k order by t) as b, lead(v, 1, v * 2) over (order by t) as a from r",
    """select t, percent_rank() over (partition by k order by v nulls first) as p,
        cume_dist() over (partition by k order by v nulls first) as c, cume_dist() over (order by t) * 2 as d from r""",
]


@pytest.mark.parametrize("text", QUERIES)
def test_rows_are_those_of_duckdb(text: str) -> None:
    rows = random_rows(random.Random(len(text)))
    found, expected = Environment().sql(text, r=rows).to_arrow(), query(text, r=rows).to_arrow_table()
    assert found.column_names == expected.column_names
    ours, theirs = ([repr([*map(_plain, row.values())]) for row in table.to_pylist()] for table in (found, expected))
    assert sorted(ours) == sorted(theirs)


def _plain(value: Any) -> Any:
    return f"{float(value):.6g}" if hasattr(value, "__float__") else value


REFUSED = {
    "select t, nth_value(v, 2) over (order by t) as f from r": "nth_value can't be computed over rows",
    "select t, first_value(v) over (partition by k) as f from r": "first_value without a value or an order",
    "select t, rank() ignore nulls over (order by t) as f from r": "rank of values that are not null",
    "select t, cume_dist() over (partition by k) as c from r": "cume_dist of some rows or without an order",
    "select t from r where row_number() over (order by t) < 3": "filter by them in QUALIFY",
    "select k, count(*) as n from r group by k having rank() over (order by k) > 1": "filter by them in QUALIFY",
    "select t, rank() over () as p from r": "rank without an order",
    "select t, rank(v) over (order by t) as p from r": "rank takes no argument",
    "select t, rank() over (order by t rows 2 preceding) as p from r": "rank of some rows",
    "select t, sum(v) over (order by t range between 3 preceding and current row) as s from r": "by the distance",
    "select t, sum(v) over (order by t rows between 3 preceding and 1 preceding) as s from r": "has the row itself",
    "select t, sum(v) over (rows 3 preceding) as s from r": "without an order",
    "select t, lag(v, 1, 0, 0) over (order by t) as x from r": "lag got 4 arguments",
    "select t, lag(v, 0) over (order by t) as x from r": "lag of the row itself",
    "select t, lag(v, k) over (order by t) as x from r": "a number of rows is a constant",
    "select t, lag(v) ignore nulls over (order by t) as x from r": "lag of values that are not null",
    "select t, sum(rank() over (order by t)) over () as x from r": "a query in FROM",
    "select t, rank() over w as p from r": "ALIAS can't be translated",
    "select k, rank() over (order by t) as p from r group by k": "t is not a column of the groups",
    "select t from r qualify t in (select t from r)": "a query in QUALIFY",
    "select t, rank() over (order by nope) as p from r": "there is no column nope",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_can_not_be_computed_is_refused_at_its_place(text: str) -> None:
    with pytest.raises(ExpressionError, match="in line 1, column") as caught:
        Environment().sql(text, r=random_rows(random.Random(1)))
    assert REFUSED[text] in str(caught.value)
