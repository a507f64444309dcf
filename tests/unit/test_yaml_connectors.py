"""Change capture, sinks of many tables and windows in YAML are the values that Python builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from volley import ConfigError, Environment, PostgresSource, col, load_config, tumbling
from volley.iceberg import IcebergSink, IcebergSinkConfig, IcebergStorage, Upsert
from volley.plan.aggregates import count, sum_

TEXT = """
sources:
  shop:
    connector: postgres-cdc
    config: {host: db, database: shop, user: me, slot_name: orders, publication: orders, changelog: true}
    streams: [{name: orders, sync_mode: changes_only}]
sinks:
  lake:
    connector: iceberg
    config: {namespace: lake, table: all, local: {path: /lake}, route: {table: "{item}", omit: item, on_error: park}}
pipelines:
  shop:
    source: shop
    sink: lake
    steps:
      - explode: tags
      - window: {keys: item, tumbling: 1m, on: at, lateness: 10s, aggregate: {n: count, total: {sum: price * 2}}}
"""


def test_they_are_the_same_values(tmp_path: Path) -> None:
    (tmp_path / "volley.yaml").write_text(TEXT)
    config = load_config(tmp_path / "volley.yaml", {})
    source = PostgresSource(
        host="db",
        database="shop",
        user="me",
        slot_name="orders",
        publication="orders",
        tables="public.orders",
        load="none",
        changelog=True,
    )
    lake = IcebergSinkConfig(namespace="lake", table="all", storage=IcebergStorage.Local("/lake"))
    stream = (
        Environment()
        .from_source(source)
        .explode("tags")
        .key_by("item")
        .window(tumbling("1m"), on="at", lateness="10s")
        .aggregate(n=count(), total=sum_(col("price") * 2))
    )
    assert config.sources["shop"] == source
    assert config.sinks["lake"] == IcebergSink(lake).routed("{item}", omit="item", on_error="park")
    assert config.pipelines["shop"].stream == stream


UPSERT = """
sources:
  shop:
    connector: postgres-cdc
    config: {host: db, database: shop, user: me, slot_name: orders, publication: orders, tables: public.orders}
  ticks: {connector: rate}
sinks:
  lake: {connector: iceberg, config: {namespace: lake, table: t, local: {path: /lake}, commit_mode: upsert}}
pipelines:
  shop: {source: shop, sink: lake}
"""


def test_an_upsert_by_the_primary_key_of_a_captured_table(tmp_path: Path) -> None:
    (tmp_path / "volley.yaml").write_text(UPSERT)
    sink = load_config(tmp_path / "volley.yaml", {}).sinks["lake"]
    assert isinstance(sink, IcebergSink)
    assert sink.config.commit_mode == Upsert()
    (tmp_path / "volley.yaml").write_text(UPSERT.replace("source: shop", "source: ticks"))
    with pytest.raises(ConfigError, match="key_fields are missing"):
        load_config(tmp_path / "volley.yaml", {})
