"""What a ConsoleSink prints, what a RateSource takes, and how connectors are found by their short names."""

from __future__ import annotations

import pyarrow as pa
import pytest

import volley
from volley import (
    ConfigError,
    ConsoleSink,
    Epoch,
    FileSource,
    MemorySink,
    Metrics,
    RateSource,
    Sink,
    Source,
    WebhookSource,
)
from volley.contracts.sink import SinkContext
from volley.registry import connectors_with, load


def printed(capsys: pytest.CaptureFixture[str], rows: int, *tasks: list[dict[str, object]]) -> str:
    schema = pa.schema({"id": pa.int64(), "[b]name": pa.string()})
    committer = ConsoleSink(rows).open(SinkContext("a [job]", schema, Metrics()))
    epoch = Epoch("q", 7)
    results = []
    for number, data in enumerate(tasks):
        task = committer.writer(epoch).open(number)
        for row in data:
            task.write(pa.RecordBatch.from_pylist([row], schema))
        results.append(task.close())
    assert all(len(result.committables) <= rows for result in results)
    committer.commit(epoch, results)
    return capsys.readouterr().out


def row(number: int, name: str | None = "x") -> dict[str, object]:
    return {"id": number, "[b]name": name}


def test_the_first_rows_of_an_epoch_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, 3, [row(11)], [], [row(12), row(13), row(14), row(15), row(16)])
    assert "a [job], epoch 7: 6 rows" in text
    assert [number for number in range(11, 17) if str(number) in text] == [11, 12, 13]


def test_values_are_not_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, 3, [row(1, "[/red]"), row(2, None), row(3, "[bold]x")])
    assert all(shown in text for shown in ("[b]name", "[/red]", "[bold]x"))


def test_wrong_settings() -> None:
    with pytest.raises(ConfigError, match="rows 0"):
        ConsoleSink(0)
    for rate in (0, 1.5):
        with pytest.raises(ConfigError, match=f"rows_per_second {rate}"):
            RateSource(rate)  # type: ignore[arg-type]


def test_a_rate_source_is_a_value() -> None:
    source = RateSource(rows_per_second=10)
    assert source == RateSource(10) != RateSource(11)
    assert (source.bounded, source.identity) == (False, "rate:10")


def test_every_short_name_is_a_connector() -> None:
    assert all(issubclass(load("source", name), Source) for name in connectors_with("source"))
    assert all(issubclass(load("sink", name), Sink) for name in connectors_with("sink"))
    assert load("source", "files") is FileSource
    assert load("sink", "memory") is MemorySink


def test_each_connector_is_a_public_name() -> None:
    parts = [load(part, name) for part in ("source", "sink") for name in connectors_with(part)]
    assert all(getattr(volley, part.__name__) is part and part.__name__ in volley.__all__ for part in parts)


def test_the_former_name_of_a_class_warns() -> None:
    with pytest.warns(DeprecationWarning, match="HttpSource is called WebhookSource"):
        assert volley.HttpSource is WebhookSource


def test_an_unknown_name_lists_the_near_ones() -> None:
    with pytest.raises(ConfigError, match="no connector 'memroy'") as caught:
        load("source", "memroy")
    assert "'memory'" in str(caught.value.hint)
