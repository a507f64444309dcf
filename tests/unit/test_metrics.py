"""Counters that add up, snapshots that stay, and text that Prometheus' own parser reads."""

from __future__ import annotations

import json
import threading
from dataclasses import FrozenInstanceError
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.waiting import wait_until
from volley import ConfigError, Metrics, MetricsSnapshot, WriteResult

COUNTERS = [
    *("records_written", "records_failed", "bytes_written", "commits_success", "commits_failed", "commit_retries"),
    *("files_created", "batches_flushed", "commit_latency_us", "write_latency_us"),
    *("batch_size_min", "batch_size_max", "batch_size_sum"),
    *("maintenance_runs", "maintenance_failed", "maintenance_us"),
]


def written(sizes: list[int]) -> WriteResult:
    """The result of a task that wrote batches of these sizes."""
    if not sizes:
        return WriteResult()
    return WriteResult(sum(sizes), 10 * sum(sizes), 0.5, len(sizes), min(sizes), max(sizes), 1)


def busy() -> Metrics:
    metrics = Metrics()
    metrics.record_write(written([10_000, 10_000, 500]))
    metrics.record_write(written([20]))
    metrics.record_commit(0.2, succeeded=True)
    metrics.record_commit(0.4, succeeded=True)
    metrics.record_retry()
    metrics.record_commit(3.0, succeeded=False)
    metrics.record_failed(520)
    metrics.record_maintenance(0.25, succeeded=True)
    metrics.record_maintenance(0.5, succeeded=False)
    return metrics


def samples(text: str) -> dict[tuple[str, str], float]:
    """What Prometheus' parser makes of exposition text, by name and bucket bound."""
    return {
        (sample.name, sample.labels.get("le", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_have_the_names_of_the_spec() -> None:
    metrics = busy()
    assert [getattr(metrics, name) for name in COUNTERS] == [
        *(20_520, 520, 205_200, 2, 1, 1, 2, 4, 3_600_000, 1_000_000, 20, 10_000, 20_520),
        *(1, 1, 750_000),
    ]
    assert [getattr(metrics.snapshot(), name) for name in COUNTERS] == [getattr(metrics, name) for name in COUNTERS]


@pytest.mark.parametrize("take", [lambda metrics: metrics, lambda metrics: metrics.snapshot()], ids=["live", "frozen"])
def test_computed_figures(take: object) -> None:
    figures: MetricsSnapshot = take(busy())  # type: ignore[operator]
    assert figures.avg_commit_latency_ms() == pytest.approx(1_200)
    assert figures.avg_write_latency_ms() == pytest.approx(250)
    assert figures.success_rate() == pytest.approx(2 / 3)
    assert figures.retry_rate() == pytest.approx(1 / 3)
    assert figures.bytes_per_second(10) == 20_520
    assert figures.records_per_second(2) == 10_260
    assert figures.avg_batch_size() == 5_130


def test_figures_before_anything_happened() -> None:
    metrics = Metrics()
    assert metrics.success_rate() == 1.0
    assert metrics.avg_commit_latency_ms() == metrics.avg_write_latency_ms() == metrics.retry_rate() == 0
    assert metrics.avg_batch_size() == metrics.records_per_second(0) == metrics.bytes_per_second(0) == 0
    assert metrics.batch_size_min == 0
    assert metrics.snapshot().seconds_since_last_commit is None


def test_success_rate_counts_failures_only_when_there_are_some() -> None:
    metrics = Metrics()
    metrics.record_commit(0.1, succeeded=False)
    assert metrics.success_rate() == 0.0
    assert metrics.snapshot().seconds_since_last_commit is None


def test_what_a_sink_counts_is_counted_by_its_job_too() -> None:
    metrics = Metrics({"job_name": "j"})
    one, other = metrics.of_sink("db.t"), metrics.of_sink("db.t")
    one.record_write(written([3]))
    other.record_write(written([4, 5]))
    other.record_commit(0.1, succeeded=True)
    assert metrics.by_sink == {"db.t": one, "db.t 2": other}
    assert (one.records_written, other.records_written, metrics.records_written) == (3, 9, 12)
    assert (one.commits_success, other.commits_success, metrics.commits_success) == (0, 1, 1)
    shown = [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(metrics.to_prometheus_format())
        for sample in family.samples
        if sample.name == "volley_iceberg_records_written_total"
    ]
    assert shown == [({"job_name": "j", "sink": "db.t"}, 3), ({"job_name": "j", "sink": "db.t 2"}, 9)]
    assert metrics.snapshot_and_reset().records_written == 12
    assert one.snapshot() == other.snapshot() == metrics.snapshot() == MetricsSnapshot()


def test_what_a_job_counts_beside_its_sinks_is_served() -> None:
    metrics = Metrics({"job_name": "j"})
    metrics.of_sink("db.t").record_write(written([3]))
    metrics.record_lost(2)
    registry = metrics.to_registry("mine")
    assert registry.get_sample_value("mine_iceberg_inputs_lost_total", {"job_name": "j"}) == 2
    assert registry.get_sample_value("mine_iceberg_records_written_total", {"job_name": "j", "sink": "db.t"}) == 3
    metrics.record_lost(1)
    assert registry.get_sample_value("mine_iceberg_inputs_lost_total", {"job_name": "j"}) == 3


def test_labels_are_escaped() -> None:
    labels = {"job_name": 'a "b"\n\\c'}
    family, *_ = text_string_to_metric_families(Metrics(labels).to_prometheus_format())
    assert family.samples[0].labels == labels


def test_an_unknown_counter_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="records_wrote"):
        _ = Metrics().records_wrote


def test_a_snapshot_is_frozen_and_stays_as_it_is() -> None:
    metrics = busy()
    before = metrics.snapshot()
    assert before == metrics.snapshot()
    assert hash(before) == hash(metrics.snapshot())
    metrics.record_retry()
    assert before.commit_retries == 1
    assert before != metrics.snapshot()
    with pytest.raises(FrozenInstanceError):
        before.commit_retries = 5  # type: ignore[misc]


def test_json() -> None:
    snapshot = busy().snapshot()
    found = json.loads(snapshot.to_json())
    assert {name: found[name] for name in COUNTERS} == {name: getattr(snapshot, name) for name in COUNTERS}
    assert found["seconds_since_last_commit"] >= 0
    assert found == json.loads(json.dumps(snapshot.to_dict()))


def test_prometheus_text_of_the_spec() -> None:
    snapshot = busy().snapshot()
    found = samples(snapshot.to_prometheus_format("rivven"))
    assert found["rivven_iceberg_records_written_total", ""] == 20_520
    assert found["rivven_iceberg_bytes_written_total", ""] == 205_200
    assert found["rivven_iceberg_batches_committed_total", ""] == 2
    assert found["rivven_iceberg_commit_latency_avg_ms", ""] == pytest.approx(1_200)
    assert found["rivven_iceberg_success_rate", ""] == pytest.approx(2 / 3)
    assert found["rivven_iceberg_seconds_since_last_commit", ""] == snapshot.seconds_since_last_commit
    for name in (name for name in COUNTERS if name not in ("batch_size_min", "batch_size_max")):
        assert found[f"rivven_iceberg_{name}_total", ""] == getattr(snapshot, name)


def test_the_most_that_any_worker_has_had_is_the_memory() -> None:
    metrics = Metrics()
    for memory in (200, 300, 100):
        metrics.record_write(WriteResult(worker_memory=memory))
    assert metrics.worker_memory_bytes == 300
    assert samples(metrics.to_prometheus_format())["volley_iceberg_worker_memory_bytes", ""] == 300


def test_prometheus_histograms() -> None:
    found = samples(busy().to_prometheus_format("v"))
    duration = "v_iceberg_commit_duration_seconds"
    assert found[f"{duration}_count", ""] == found[f"{duration}_bucket", "+Inf"] == 3
    assert found[f"{duration}_sum", ""] == pytest.approx(3.6)
    assert found[f"{duration}_bucket", "0.1"] == 0
    assert found[f"{duration}_bucket", "0.25"] == 1
    assert found[f"{duration}_bucket", "0.5"] == 2
    batches = "v_iceberg_records_per_batch"
    assert found[f"{batches}_count", ""] == 4
    assert found[f"{batches}_sum", ""] == 20_520
    assert found[f"{batches}_bucket", "100.0"] == 1
    assert found[f"{batches}_bucket", "1000.0"] == 2
    assert found[f"{batches}_bucket", "10000.0"] == 4


def test_prometheus_families_have_help_and_type() -> None:
    families = {family.name: family for family in text_string_to_metric_families(Metrics().to_prometheus_format("v"))}
    assert families["v_iceberg_records_written"].type == "counter"
    assert families["v_iceberg_success_rate"].type == "gauge"
    assert families["v_iceberg_commit_duration_seconds"].type == "histogram"
    assert all(family.documentation for family in families.values())
    assert families["v_iceberg_seconds_since_last_commit"].samples == []


@pytest.mark.parametrize("prefix", ["", "my-app", "1st", "a b", "a\nb 1"])
def test_a_prefix_that_would_make_invalid_text_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="prefix") as caught:
        Metrics().to_prometheus_format(prefix)
    assert caught.value.hint


@given(st.lists(st.lists(st.integers(1, 100_000), max_size=5), max_size=8))
def test_whatever_is_written_adds_up(tasks: list[list[int]]) -> None:
    metrics = Metrics()
    for sizes in tasks:
        metrics.record_write(written(sizes))
    sizes = [size for task in tasks for size in task]
    now = metrics.snapshot()
    assert now.records_written == now.batch_size_sum == sum(sizes)
    assert now.batches_flushed == len(sizes)
    assert now.batch_size_min == min(sizes, default=0)
    assert now.batch_size_max == max(sizes, default=0)
    assert sum(now.records_per_batch.counts) == len(sizes)
    assert now.records_per_batch.total == pytest.approx(sum(sizes))
    buckets = [value for _, value in now.records_per_batch.cumulated()]
    assert all(low <= high for low, high in pairwise(buckets))


def test_interval_snapshots_lose_and_double_nothing_between_threads() -> None:
    metrics, taken = Metrics(), []

    def write() -> None:
        for _ in range(500):
            metrics.record_write(written([3]))
            metrics.record_commit(0.001, succeeded=True)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()

    def ended() -> bool:
        taken.append(metrics.snapshot_and_reset())
        return not any(thread.is_alive() for thread in threads)

    wait_until(ended, 60, "the threads")
    taken.append(metrics.snapshot_and_reset())
    assert sum(each.records_written for each in taken) == 6_000
    assert sum(each.commits_success for each in taken) == 2_000
    assert sum(sum(each.commit_durations.counts) for each in taken) == 2_000
    assert metrics.snapshot() == MetricsSnapshot()
    # A reset begins a new interval of counting; the last commit is as long ago as it was.
    assert metrics.snapshot().seconds_since_last_commit is not None
