"""Steps that keep state, shown without a job, against DuckDB over random rows in random epochs."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.duck import query
from volley import (
    DataStream,
    Environment,
    MemorySource,
    avg,
    col,
    count,
    max_,
    min_,
    session,
    sliding,
    sum_,
    tumbling,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema({"n": pa.int64(), "k": pa.string(), "v": pa.int64(), "at": pa.timestamp("us", "UTC")})
_rows = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.none() | st.sampled_from("ab"),
            "v": st.none() | st.integers(-5, 5),
            "at": st.integers(0, 600).map(lambda second: START + timedelta(seconds=second)),
        }
    ),
    max_size=25,
)
tables = _rows.map(lambda rows: pa.Table.from_pylist([row | {"n": n} for n, row in enumerate(rows)], SCHEMA))
epochs = st.none() | st.integers(1, 10)
# All rows are on time.
LATE: Any = {"lateness": "1h"}


def stream(table: pa.Table, rows_per_epoch: int | None) -> DataStream:
    return Environment().from_source(MemorySource(table, rows_per_epoch=rows_per_epoch))


def assert_same(shown: DataStream, sql: str, **sources: pa.Table) -> None:
    expected = query(sql, **sources).to_arrow_table()
    rows = shown.to_arrow()
    assert rows.schema == shown.schema
    assert rows.column_names == expected.column_names
    assert _counted(rows) == _counted(expected.cast(rows.schema))


def _counted(table: pa.Table) -> Counter[Any]:
    return Counter(map(repr, table.to_pylist()))


@given(tables, epochs)
def test_windows_close_at_the_end(table: pa.Table, size: int | None) -> None:
    keyed = stream(table, size).key_by("k")
    results: Any = {"n": count(), "total": sum_("v"), "least": min_("v")}
    sql = "count(*) as n, sum(v)::bigint as total, min(v) as least from t group by all"
    start = "time_bucket(interval '1 minute', \"at\")"
    assert_same(
        keyed.window(tumbling("1m"), on="at", **LATE).aggregate(**results),
        f"select {start} as window_start, {start} + interval '1 minute' as window_end, k, {sql}",
        t=table,
    )
    starts = "(select t.*, unnest([time_bucket(interval '1 minute', \"at\") - m * interval '1 minute' for m in [0, 1]])"
    assert_same(
        keyed.window(sliding("2m", every="1m"), on="at", **LATE).aggregate(**results),
        f"select s as window_start, s + interval '2 minute' as window_end, k, "
        f"{sql.replace('from t', f'from {starts} as s from t)')}",
        t=table,
    )
    # A pause of as long as the gap ends a session.
    assert_same(
        keyed.window(session("1m"), on="at", **LATE).aggregate(**results),
        f"""
        with marked as (select *, "at" - lag("at") over o >= interval '1 minute' as begins from t
                        window o as (partition by k order by "at", n)),
             numbered as (select *, count(*) filter (begins) over (partition by k order by "at", n) as session
                          from marked)
        select min("at") as window_start, max("at") + interval '1 minute' as window_end, k,
               {sql.partition(" from")[0]} from numbered group by k, session
        """,
        t=table,
    )


@given(tables, epochs)
def test_groups_have_all_rows_of_a_key(table: pa.Table, size: int | None) -> None:
    shown = stream(table, size).key_by("k").aggregate(n=count(), total=sum_("v"), mean=avg("v"), most=max_("v"))
    sql = "select k, count(*) as n, sum(v)::bigint as total, avg(v) as mean, max(v) as most from t group by k"
    assert_same(shown, sql, t=table)


@given(tables, epochs)
def test_a_group_of_all_rows_is_there_without_rows(table: pa.Table, size: int | None) -> None:
    positive = stream(table, size).filter("v > 0")
    shown = positive.key_by().aggregate(n=count(), total=sum_("v"), most=max_("v"), values=count(col("v")))
    sql = "select count(*) as n, sum(v)::bigint as total, max(v) as most, count(v) as values from t where v > 0"
    assert_same(shown, sql, t=table)
    assert_same(shown.filter("n = 0").select(none="n"), f"select n as none from ({sql}) where n = 0", t=table)


@given(tables, epochs)
def test_deduplicate_keeps_the_first_row_of_a_key(table: pa.Table, size: int | None) -> None:
    shown = stream(table, size).deduplicate("k")
    assert_same(shown, "select * from t qualify row_number() over (partition by k order by n) = 1", t=table)
    # Rows of a union follow each other; a step may be behind.
    both = stream(table, size).union(stream(table, size)).deduplicate("n").filter("v > 0").select("n")
    assert_same(both, "select n from t where v > 0", t=table)


@given(tables, tables, epochs)
def test_streams_are_joined(left: pa.Table, right: pa.Table, size: int | None) -> None:
    for how in ("inner", "left"):
        shown = stream(left, size).join(
            stream(right, None),
            on="k",
            how=how,
            within=("0s", "1m"),
            time="at",
            columns=["n", "at"],
            suffix="_2",
            **LATE,
        )
        sql = f"""
            select l.*, r.n as n_2, r."at" as at_2 from l {how} join r
            on l.k = r.k and r."at" between l."at" and l."at" + interval '1 minute'
        """
        assert_same(shown, sql, l=left, r=right)


@given(tables, epochs, st.integers(1, 30))
def test_a_limit_before_other_steps(table: pa.Table, size: int | None, most: int) -> None:
    shown = stream(table, size).limit(most).key_by().aggregate(n=count())
    rows = min(most, table.num_rows)
    assert shown.to_arrow().to_pylist() == [{"n": rows}]
