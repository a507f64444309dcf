"""The dashboard and the alert rules in docs/monitoring ask for metrics that a job has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from volley import EpochProgress, Lag, Metrics

_FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"


def exposed() -> set[str]:
    """The names of all metrics of a job with a sink, in an epoch, behind its source."""
    metrics = Metrics({"job_name": "orders"})
    metrics.of_sink("db.orders").record_commit(0.1, succeeded=True)
    metrics.record_lag(Lag("db.events", rows=1, seconds=1.0, snapshots=1))
    metrics.record_epoch(3)
    metrics.follow(lambda: EpochProgress(4))
    families = text_string_to_metric_families(metrics.to_prometheus_format())
    return {sample.name for family in families for sample in family.samples}


def asked(text: str) -> set[str]:
    return set(re.findall(r"volley_\w+", text))


def test_the_dashboard_asks_for_metrics_that_are_there() -> None:
    dashboard = json.loads((_FOLDER / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [each["query"] for each in dashboard["templating"]["list"]]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert len(asked("\n".join(queries))) > 10
    assert asked("\n".join(queries)) - exposed() == set()


def test_the_alerts_ask_for_metrics_that_are_there() -> None:
    (group,) = yaml.safe_load((_FOLDER / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]:
        assert asked(rule["expr"]) - exposed() == set()
        assert rule["annotations"]["summary"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) == 6


@pytest.mark.parametrize("name", ["commit", "write", "maintenance"])
def test_times_are_there_in_seconds_too(name: str) -> None:
    metrics = Metrics()
    metrics.record_commit(0.25, succeeded=True)
    metrics.record_maintenance(2.5, succeeded=True)
    text = metrics.to_prometheus_format()
    expected = {"commit": 0.25, "write": 0.0, "maintenance": 2.5}[name]
    assert f"volley_iceberg_{name}_seconds_total {expected}" in text
