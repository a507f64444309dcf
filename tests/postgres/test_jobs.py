"""Whole jobs: a table of PostgreSQL and its mirror in Iceberg have the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import postgres_to_iceberg
from tests.captured import Database
from tests.postgres.jobs import config, difference, mirror, start
from tests.waiting import wait_until
from volley import IcebergSink, IcebergSinkConfig, IcebergStorage

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.parametrize("arrow_native", [True, False])
def test_a_mirror(shop: Database, tmp_path: Path, arrow_native: bool) -> None:
    mirror(tmp_path, shop.source(), arrow_native=arrow_native)
    assert difference(shop, tmp_path) == []
    shop.run("update orders set total = total + 1 where id % 7 = 0", "delete from orders where id % 5 = 0")
    shop.run("update orders set id = id + 10000 where id % 9 = 0", "insert into orders values (5, 'again', null, null)")
    job = mirror(tmp_path, shop.source(), arrow_native=arrow_native)
    assert difference(shop, tmp_path) == []
    assert job.progress.epochs == 1
    assert IcebergSink(config(tmp_path)).table().schema().column_names == ["id", "customer", "total", "note"]


def test_an_endless_job_follows(shop: Database, tmp_path: Path) -> None:
    with start(tmp_path, shop.source(bounded=False)) as job:
        wait_until(lambda: job.progress.epochs > 0 or job.exception is not None, 60, "the load")
        shop.run("update orders set note = 'seen' where id < 50")
        wait_until(lambda: job.exception is not None or job.progress.epochs > 1, 60, "the changes")
        wait_until(lambda: "public.orders" in job.metrics.lags, 10, "the lag")
        lag = job.metrics.lags["public.orders"]
    assert job.exception is None
    assert difference(shop, tmp_path) == []
    assert lag.retained_bytes is not None
    assert lag.staged_bytes == 0


def test_the_example(shop: Database, tmp_path: Path) -> None:
    shop.run("delete from orders where id > 10")
    source = shop.source()
    arguments = (source.host, source.port, source.database, source.user, str(source.password), tmp_path)
    assert postgres_to_iceberg.pipeline(*arguments).progress.rows == 10
    shop.run("delete from orders where id = 1")
    postgres_to_iceberg.pipeline(*arguments)
    config = IcebergSinkConfig(namespace="shop", table="orders", storage=IcebergStorage.Local(str(tmp_path / "lake")))
    rows = IcebergSink(config).table().scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == list(range(2, 11))
    assert rows["gross"].to_pylist()[0] == pytest.approx(1.25 * float(rows["total"].to_pylist()[0]))
