"""What a notebook shows of values: tables without secrets, and nothing of a text is taken for HTML."""

from __future__ import annotations

import html
import re
from typing import Any

import pyarrow as pa
import pytest

from volley import (
    BearerAuth,
    Environment,
    FileSink,
    FileSource,
    FinishedEpoch,
    HmacAuth,
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    KafkaSink,
    KafkaSource,
    Lag,
    MemorySink,
    Metrics,
    PostgresSource,
    Restart,
    col,
)
from volley.contracts.epoch import Epoch
from volley.contracts.reports import MaintenanceReport
from volley.iceberg import IcebergTable, Maintenance, Partitioning, RestCatalog, SchemaEvolution, Upsert


def test_an_expression_is_code() -> None:
    assert (col("a<b") > 1)._repr_html_() == "<code>col(&#x27;a&lt;b&#x27;) &gt; lit(1)</code>"


def test_a_config_is_a_table_without_secrets() -> None:
    storage = IcebergStorage.S3("eu", "lake", "http://s3", access_key_id="key-id", secret_access_key="hush-hush")
    config = IcebergSinkConfig(catalog_uri="http://c", warehouse="w", namespace="db", table="<t>", storage=storage)
    for shown in (config.with_credential("id:hush-hush")._repr_html_(), config.ref._repr_html_()):
        assert "hush-hush" not in shown
        assert "<th>table</th><td>&lt;t&gt;</td>" in shown


CONFIG = IcebergSinkConfig(
    catalog_uri="http://c", warehouse="w", namespace="db", table="<t>", storage=IcebergStorage.Local("/lake")
).with_credential("id:hush-hush")
VALUES = [
    IcebergSink(CONFIG.with_commit_mode(Upsert("id"))),
    IcebergSource(IcebergSourceConfig(CONFIG)),
    IcebergSink(CONFIG).routed("{kind}", key_fields={"a": "id"}),
    CONFIG.ref,
    IcebergTable(CONFIG),
    IcebergStorage.S3("eu", "lake", access_key_id="key-id", secret_access_key="hush-hush"),
    RestCatalog("http://c", credential="id:hush-hush"),
    KafkaSource("host:9092", "t", schema="id long", properties={"sasl.password": "hush-hush"}),
    KafkaSink("host:9092", "t", key="id", properties={"sasl.password": "hush-hush"}),
    PostgresSource(
        host="h", database="d", user="u", password="hush-hush", slot_name="s", publication="p", tables="public.t"
    ),
    BearerAuth("hush-hush"),
    HmacAuth("github", "hush-hush"),
    FileSource("/in/*.json", format="json"),
    FileSink("/out", format="json"),
    Environment("local[2]"),
    Restart(limit=3),
    Maintenance(budget=0.5),
    FinishedEpoch(7, rows=1234),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_settings_are_a_table_without_secrets(value: Any) -> None:
    shown = value._repr_html_()
    assert shown.startswith(f"<b>{type(value).__qualname__}</b><table><tr><th>")
    assert "hush" not in shown
    assert "<t>" not in shown
    # No mark is left open, and nothing of a value is one.
    tags = re.findall("<(/?)([^>]*)>", shown)
    assert sum(1 if not end else -1 for end, name in tags if name != "br") == 0
    assert {name for _, name in tags} <= {"b", "table", "tr", "th", "td"}


def test_plans_and_reports_are_the_text_that_they_print() -> None:
    report = MaintenanceReport(due={"db.<t>": "now"})
    evolution = SchemaEvolution("id int").add("<c>", "string")
    for value in (report, evolution, Partitioning.bucket("<c>", n=4)):
        assert value._repr_html_() == f"<pre>{html.escape(str(value))}</pre>"
    lag = Lag("db.events", rows=1_000)
    assert lag._repr_html_() == (
        "<b>Lag</b><table><tr><th>source</th><td>db.events</td></tr><tr><th>rows</th><td>1000</td></tr></table>"
    )


def test_the_key_of_a_topic_is_no_secret() -> None:
    assert "<th>key</th><td>&lt;id</td>" in KafkaSink("host:9092", "t", key="<id")._repr_html_()


def test_metrics_are_a_table() -> None:
    metrics = Metrics()
    metrics.record_failed(1234)
    assert "<th>records_failed</th><td>1,234</td>" in metrics._repr_html_()


def test_a_sink_in_memory_shows_its_first_rows() -> None:
    sink = MemorySink("out")
    assert "no rows yet" in sink._repr_html_()
    sink._epochs[Epoch("q", 0)] = pa.table({"<id>": range(20), "text": ["<i>"] * 20})
    shown = sink._repr_html_()
    assert shown.count("<tr>") == 11
    assert "&lt;id&gt;<br>int64" in shown
    assert "&lt;i&gt;" in shown
    assert "20 rows" in shown
    assert sink.to_arrow(3).num_rows == sink.to_pandas(3).shape[0] == 3
