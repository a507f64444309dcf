"""What a notebook shows of values: tables without secrets, and nothing of a text is taken for HTML."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from typing import Any, cast
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import volley
from volley import (
    AzureQueue,
    BearerAuth,
    Environment,
    FileSink,
    FileSource,
    FinishedEpoch,
    FunctionSink,
    HmacAuth,
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    KafkaSink,
    KafkaSource,
    Lag,
    MemoryCatalog,
    MemorySink,
    MemorySource,
    Metrics,
    Overwrite,
    PostgresSource,
    PublicKeyAuth,
    PubSubSubscription,
    Restart,
    ServerTls,
    SignatureScheme,
    Snapshot,
    SnapshotManager,
    SnsAuth,
    SqsQueue,
    TimeTravelQuery,
    col,
    tumbling,
)
from volley.columns.window_plot import window_plot
from volley.contracts.epoch import Epoch
from volley.contracts.reports import MaintenanceReport
from volley.engine.history import History
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
    TimeTravelQuery(CONFIG),
    SnapshotManager(CONFIG),
    IcebergStorage.S3("eu", "lake", access_key_id="key-id", secret_access_key="hush-hush"),
    RestCatalog("http://c", credential="id:hush-hush"),
    KafkaSource("host:9092", "t", schema="id long", properties={"sasl.password": "hush-hush"}),
    KafkaSink("host:9092", "t", key="id", properties={"sasl.password": "hush-hush"}),
    PostgresSource(
        host="h", database="d", user="u", password="hush-hush", slot_name="s", publication="p", tables="public.t"
    ),
    BearerAuth("hush-hush"),
    HmacAuth("github", "hush-hush"),
    PublicKeyAuth("sendgrid", "MFkw"),
    SnsAuth("arn:aws:sns:eu-west-1:123456789012:orders"),
    SignatureScheme("X-Signature"),
    FileSource("/in/*.json", format="json"),
    FileSink("/out", format="json"),
    SqsQueue("https://q/x", access_key_id="hush", secret_access_key="hush"),
    PubSubSubscription("projects/p/subscriptions/s"),
    AzureQueue("https://q/x", account_key="hush"),
    Environment("local[2]"),
    Restart(limit=3),
    Maintenance(budget=0.5),
    FinishedEpoch(7, rows=1234),
    ServerTls("server.pem", "server.key"),
    FunctionSink(print),
    Snapshot(7),
    Overwrite.dynamic(),
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


def test_a_table_that_cannot_be_loaded_says_why() -> None:
    config = IcebergSinkConfig(
        namespace="db", table="<t>", catalog=MemoryCatalog(), storage=IcebergStorage.Local("/lake")
    )
    for value in (IcebergTable(config.with_properties({"token": "hush-hush"})), IcebergTable(config).rows):
        shown = value._repr_html_()
        assert "<pre>table db.&lt;t&gt; not found" in shown
        assert "hush" not in shown


# What others make or implement, whose text is all that there is to see.
WITHOUT = {"Change", "Delete", "Epoch", "Insert", "State", "TypeConverter", "Update", "ViewFollower", "WriteResult"}
WITHOUT |= {
    "Committer",
    "Reader",
    "Sink",
    "SinkContext",
    "Source",
    "SourceContext",
    "SparkSource",
    "Split",
    "TaskWriter",
    "Writer",
}


def test_every_public_value_has_a_view() -> None:
    classes = {name: thing for name in volley.__all__ if isinstance(thing := getattr(volley, name), type)}
    values = {name for name, thing in classes.items() if not issubclass(thing, BaseException | dict)} - WITHOUT
    assert {name for name in values if not hasattr(classes[name], "_repr_html_")} == set()


def test_streams_by_key_are_their_plan() -> None:
    readings = Environment().from_source(MemorySource([{"<id>": 1, "at": None}], {"<id>": "long", "at": "timestamp"}))
    keyed = readings.key_by("<id>")
    for value in (keyed, keyed.window(tumbling("1m"), on="at"), keyed.series(on="at")):
        shown = value._repr_html_()
        assert "col(&#x27;&lt;id&gt;&#x27;)" in shown
        assert "read MemorySource(1 row)" in shown
    assert "tumbling" in keyed.window(tumbling("1m"), on="at")._repr_html_()


def windows(keys: int, count: int) -> pa.Table:
    """Totals of each key in each window, as `aggregate` names its columns."""
    rows = [
        {
            "window_start": datetime(2026, 11, 1, 9, minute, tzinfo=UTC),
            "window_end": datetime(2026, 11, 1, 9, minute + 1, tzinfo=UTC),
            "sensor": key,
            "name": f"<s{key}>",
            "total": float(minute * (key + 1)),
        }
        for minute in range(count)
        for key in range(keys)
    ]
    return pa.Table.from_pylist(rows)


def lines(svg: str) -> list[list[tuple[float, float]]]:
    drawn = ElementTree.fromstring(svg.removeprefix("<div>").removesuffix("</div>"))
    found = [line.attrib["points"] for line in drawn.iter("{http://www.w3.org/2000/svg}polyline")]
    return [[(float(x), float(y)) for x, y in (place.split(",") for place in line.split())] for line in found]


def test_windows_are_plotted_by_key() -> None:
    shown = window_plot(windows(keys=3, count=5))
    # Those with the largest values first; y grows downwards.
    drawn = lines(shown)
    assert [[x for x, _ in line] for line in drawn] == [[0, 140, 280, 420, 560]] * 3
    assert [112 - y for y in [line[-1][1] for line in drawn]] == pytest.approx([88, 88 * 2 / 3, 88 / 3], abs=0.1)
    assert "total by sensor, 0 to 12" in shown
    assert "2026-11-01 09:00:00+00:00" in shown
    assert "script" not in shown
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", shown) == []


def test_a_plot_has_few_lines_and_says_so() -> None:
    shown = window_plot(windows(keys=20, count=3))
    assert len(lines(shown)) == 6
    assert "6 of 20 lines" in shown


@pytest.mark.parametrize(
    "rows",
    [
        windows(keys=1, count=1),
        windows(keys=2, count=3).drop_columns("window_end"),
        windows(keys=2, count=3).drop_columns("total"),
        pa.concat_tables([windows(keys=2, count=3)] * 2),
        windows(keys=2, count=3).set_column(4, "total", pa.array([None, float("nan"), float("inf"), None, None, 1.0])),
        windows(keys=2, count=3).slice(0, 0),
    ],
    ids=["one window", "no end", "no number", "no key", "no values", "no rows"],
)
def test_other_rows_are_not_plotted(rows: pa.Table) -> None:
    assert window_plot(rows) == ""


def test_a_sink_in_memory_plots_windows() -> None:
    sink = MemorySink("out")
    sink._epochs[Epoch("q", 0)] = windows(keys=2, count=3)
    assert sink._repr_html_().count("<polyline") == 2
    assert "&lt;s1&gt;" in sink._repr_html_()


def test_the_epochs_of_a_job_are_plotted() -> None:
    history = History("orders")
    for number, rows in enumerate([5, 10, 0]):
        history.add(FinishedEpoch(number, rows=rows))
    ((_, y0), (_, y1), (_, y2)) = lines(history.plot_html())[0]
    assert y1 < y0 < y2
    assert "rows of an epoch, 0 to 10" in history.plot_html()
    assert "epoch 0" in history.plot_html()
    assert History("new").plot_html() == ""
    # A figure shows itself, whether or not pyplot was imported.
    assert cast("Any", history.plot())._repr_png_().startswith(b"\x89PNG")


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
