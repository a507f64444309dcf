"""Joins in jobs: in front of windows and behind them, into several sinks, and what can't be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.duck import query
from volley import (
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    MemorySink,
    MemorySource,
    PlanError,
    StorageError,
    sum_,
    tumbling,
)

pytestmark = pytest.mark.usefixtures("spark")

START = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS = MemorySource(
    [{"at": START + timedelta(seconds=n), "customer": n % 3, "price": n} for n in range(120)], rows_per_epoch=50
)
CUSTOMERS = MemorySource([{"customer": 0, "country": "NO"}, {"customer": 1, "country": "SE"}], name="customers")
COUNTRIES = MemorySource([{"country": "NO", "name": "Norway"}], name="countries")


def test_joins_around_a_window(tmp_path: Path) -> None:
    sink = IcebergSink(IcebergSinkConfig(namespace="db", table="t", storage=IcebergStorage.Local(str(tmp_path))))
    (
        Environment(checkpoint_dir=tmp_path / "checkpoints")
        .from_source(ORDERS)
        .join(CUSTOMERS, on="customer")
        .key_by("country")
        .window(tumbling("1m"), on="at")
        .aggregate(total=sum_("price"))
        .join(COUNTRIES, on="country", how="left")
        .repartition(2, by="country")
        .to_sink(sink)
        .execute("totals")
    )
    sql = """
        select time_bucket(interval '1 minute', o."at") as window_start, c.country, sum(price)::bigint as total, n.name
        from o join c on o.customer = c.customer left join n on c.country = n.country group by all
    """
    tables = {"o": ORDERS, "c": CUSTOMERS, "n": COUNTRIES}
    environment = Environment()
    expected = query(sql, **{name: environment.from_source(table).to_arrow() for name, table in tables.items()})
    found = sink.table().scan(selected_fields=("window_start", "country", "total", "name")).to_arrow()
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_arrow_table().to_pylist()))


def test_a_join_can_not_be_backfilled(tmp_path: Path) -> None:
    def sink(name: str) -> IcebergSink:
        return IcebergSink(IcebergSinkConfig(namespace="db", table=name, storage=IcebergStorage.Local(str(tmp_path))))

    joined = Environment(checkpoint_dir=tmp_path / "checkpoints").from_source(ORDERS).join(CUSTOMERS, on="customer")
    joined.to_sink(sink("one")).execute("orders")
    with pytest.raises(PlanError, match="joins a table can't be backfilled"):
        joined.to_sink(sink("one")).to_sink(sink("two")).execute("orders", backfill=True)


def test_a_damaged_choice_of_a_version_is_named(tmp_path: Path) -> None:
    joined = Environment(checkpoint_dir=tmp_path / "checkpoints").from_source(ORDERS).join(CUSTOMERS, on="customer")
    joined.to_sink(MemorySink()).execute("orders")
    *_, last = sorted(tmp_path.rglob("joins/*/*.json"))
    last.write_text("{")
    (tmp_path / "checkpoints" / "orders" / "commits" / last.stem).unlink()
    with pytest.raises(StorageError, match=str(tmp_path / "checkpoints" / "orders")):
        joined.to_sink(MemorySink()).execute("orders")
