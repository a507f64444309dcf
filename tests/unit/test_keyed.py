"""Keyed streams as values: how they print, which schema they have, what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from volley import (
    ConfigError,
    DataStream,
    Environment,
    ExpressionError,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    MemorySink,
    MemorySource,
    PlanError,
    approx_distinct,
    avg,
    col,
    count,
    count_distinct,
    cumulative,
    first,
    last,
    list_,
    max_,
    min_,
    quantile,
    rolling,
    session,
    sliding,
    sum_,
    tumbling,
    variance,
)

ROW = {"user": "ada", "price": 1.5, "cents": 150, "at": datetime(2026, 1, 1, tzinfo=UTC), "tags": ["new"]}


def stream() -> DataStream:
    return Environment().from_source(MemorySource([ROW]))


def test_functions_and_methods_are_the_same() -> None:
    price = col("price")
    assert price.sum() == sum_("price") == sum_(price)
    assert (price.count(), price.min(), price.max(), price.avg()) == tuple(f("price") for f in (count, min_, max_, avg))
    assert (price.first(), price.last(), price.variance()) == (first("price"), last("price"), variance("price"))
    assert price.count_distinct() == count_distinct("price")
    assert price.approx_distinct() == approx_distinct("price")
    assert (price.quantile(0.5), price.to_list(3)) == (quantile("price", 0.5), list_("price", 3))
    assert sum_("price") != sum_("cents")


def test_types_of_results() -> None:
    rows = stream().key_by("user", hour=col("at").dt.truncate("hour"))
    reduced = rows.window(tumbling("1 minute"), on="at").aggregate(
        n=count(), total=sum_("price"), cents=sum_("cents"), exact=sum_(col("cents").cast("decimal(10,2)")),
        mean=avg("cents"), top=max_("user"), different=count_distinct("user"), few=list_("cents"),
        middle=quantile("cents", 0.5),
    )  # fmt: skip
    at = pa.timestamp("us", "UTC")
    assert reduced.schema == pa.schema(
        {
            **{"window_start": at, "window_end": at, "user": pa.string(), "hour": at, "n": pa.int64()},
            **{"total": pa.float64(), "cents": pa.int64(), "exact": pa.decimal128(38, 2), "mean": pa.float64()},
            **{"top": pa.string(), "different": pa.int64(), "few": pa.list_(pa.int64()), "middle": pa.float64()},
        }
    )
    assert stream().key_by("user").aggregate(n=count()).columns == ["user", "n"]
    assert stream().key_by().aggregate(n=count()).columns == ["n"]


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "no aggregate": (lambda s: s.key_by("user").aggregate(), ExpressionError, "aggregate without"),
    "no aggregate but a column": (lambda s: s.key_by().aggregate(n=col("price")), ExpressionError, "n is Expr"),
    "a name twice": (lambda s: s.key_by("user").aggregate(user=count()), ExpressionError, "'user'"),
    "a key without a name": (lambda s: s.key_by(col("price") * 2), ExpressionError, "has no name"),
    "no key": (lambda s: s.key_by(1), ExpressionError, "key_by takes"),
    "an unknown key": (lambda s: s.key_by("usr").aggregate(n=count()).schema, ExpressionError, "'usr'"),
    "a nested key": (lambda s: s.key_by("tags").aggregate(n=count()).schema, ExpressionError, "nested"),
    "a sum of texts": (lambda s: s.key_by().aggregate(n=sum_("user")).schema, ExpressionError, "takes a number"),
    "a maximum of lists": (lambda s: s.key_by().aggregate(n=max_("tags")).schema, ExpressionError, "takes a number,"),
    "a quantile of 2": (lambda s: quantile("price", 2), ExpressionError, "quantile 2"),
    "a list of none": (lambda s: list_("price", 0), ExpressionError, "limit 0"),
    "a window of 0": (lambda s: tumbling(0), ConfigError, "size 0"),
    "gaps between windows": (lambda s: sliding("1m", every="2m"), ConfigError, "leave rows out"),
    "windows put off by their length": (lambda s: tumbling("1m", offset="1m"), ConfigError, "put off by '60s'"),
    "too many windows of a row": (lambda s: sliding("365d", every="1s"), ConfigError, "in 31,536,000 windows"),
    "too many growing windows": (lambda s: cumulative("365d", step="1s"), ConfigError, "in 31,536,000 windows"),
    "steps that don't fit": (lambda s: cumulative("1h", step="7m"), ConfigError, "don't consist of steps of '420s'"),
    "gaps of growing windows": (
        lambda s: s.key_by().window(cumulative("1h", step="1m"), on="at", fill_gaps="1h"),
        ConfigError,
        "can't fill gaps",
    ),
    "no window": (lambda s: s.key_by().window("1m", on="at"), ConfigError, "window takes a window"),
    "an unknown emission": (lambda s: s.key_by().window(session(1), on="at", emit="x"), ConfigError, "emit 'x'"),
    "negative lateness": (lambda s: s.key_by().window(session(1), on="at", lateness=-1), ConfigError, "lateness -1"),
    "a time that is none": (
        lambda s: s.key_by().window(tumbling(1), on="price").aggregate(n=count()).schema,
        ExpressionError,
        "not a timestamp",
    ),
    "an unknown time": (
        lambda s: s.key_by().window(tumbling(1), on="att").aggregate(n=count()).schema,
        ExpressionError,
        "unknown column 'att'",
    ),
    "a sink that appends": (
        lambda s: s.key_by("user").aggregate(n=count()).to_sink(IcebergSink(IcebergSinkConfig(
            namespace="db", table="t", storage=IcebergStorage.Local("lake")))).start("job"),
        PlanError,
        "would get a row for each change of aggregate",
    ),
    "the last value without a window": (
        lambda s: s.key_by("user").aggregate(n=last("n")).to_sink(MemorySink()).start("job"),
        PlanError,
        "goes by the time of rows, and has none without a window",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    build, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        build(stream())


def test_steps_that_differ_have_different_texts() -> None:
    """A checkpoint knows by them that a step has changed."""
    rows = Environment().from_source(MemorySource([], "id long, at timestamp"))
    for one, other in (("12345671s", "12345672s"), ("100000d", "8639999999.999999s"), ("1234.5671s", "1234.5672s")):
        assert repr(tumbling(one)) != repr(tumbling(other))
        assert repr(rolling(one, count())) != repr(rolling(other, count()))
        joins = (rows.join(rows, "id", within=span, time="at", suffix="_2") for span in (one, other))
        assert len({*map(repr, joins)}) == 2


def test_texts_of_spans_are_those_of_checkpoints_that_exist() -> None:
    assert [repr(tumbling(size)) for size in ("30d", 0.1)] == ["tumbling('2.592e+06s')", "tumbling('0.1s')"]
