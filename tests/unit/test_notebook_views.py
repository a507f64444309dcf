"""What a notebook shows of values: tables without secrets, and nothing of a text is taken for HTML."""

from __future__ import annotations

import pyarrow as pa

from volley import IcebergSinkConfig, IcebergStorage, MemorySink, Metrics, col
from volley.epoch import Epoch


def test_an_expression_is_code() -> None:
    assert (col("a<b") > 1)._repr_html_() == "<code>col(&#x27;a&lt;b&#x27;) &gt; lit(1)</code>"


def test_a_config_is_a_table_without_secrets() -> None:
    storage = IcebergStorage.S3("eu", "lake", "http://s3", access_key_id="key-id", secret_access_key="hush-hush")
    config = IcebergSinkConfig(catalog_uri="http://c", warehouse="w", namespace="db", table="<t>", storage=storage)
    for shown in (config.with_credential("id:hush-hush")._repr_html_(), config.ref._repr_html_()):
        assert "hush-hush" not in shown
        assert "<th>table</th><td>&lt;t&gt;</td>" in shown


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
