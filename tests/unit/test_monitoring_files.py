"""The dashboard and the alert rules in docs/monitoring ask for metrics that a job has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.unit.metrics_page import exposed, page
from volley import Metrics
from volley.metrics.metrics import DESCRIPTIONS

_DOCS = Path(__file__).parents[2] / "docs"
_FOLDER = _DOCS / "monitoring"


NAMES = {sample.name for family in exposed() for sample in family.samples}


def asked(text: str) -> set[str]:
    return set(re.findall(r"volley_\w+", text))


def test_the_dashboard_asks_for_metrics_that_are_there() -> None:
    dashboard = json.loads((_FOLDER / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [each["query"] for each in dashboard["templating"]["list"]]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert len(asked("\n".join(queries))) > 10
    assert asked("\n".join(queries)) - NAMES == set()


DANGEROUS = """job_state job_restarts_total seconds_since_last_commit running_epoch_seconds commits_failed_total
    records_failed_total rows_late_total rows_ahead_total rows_untimed_total inputs_lost_total table_records_parked
    values_rescued_total values_dropped_total
    source_lag_seconds source_lag_rows source_lag_files source_lag_bytes source_lag_snapshots
    source_lag_retained_bytes source_lag_staged_bytes watermark_seconds source_watermark_seconds worker_memory_bytes
    maintenance_failed_total table_data_files table_delete_files table_snapshots table_deleted_rows"""


def test_what_can_go_wrong_is_on_the_dashboard() -> None:
    shown = asked((_FOLDER / "grafana.json").read_text())
    assert {f"volley_iceberg_{name}" for name in DANGEROUS.split()} - shown == set()
    places = [panel["gridPos"] for panel in json.loads((_FOLDER / "grafana.json").read_text())["panels"]]
    assert len({(place["x"], place["y"]) for place in places}) == len(places)


def test_the_alerts_ask_for_metrics_that_are_there() -> None:
    (group,) = yaml.safe_load((_FOLDER / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]:
        assert asked(rule["expr"]) - NAMES == set()
        assert rule["annotations"]["summary"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])


@pytest.mark.parametrize("name", ["commit", "write", "maintenance"])
def test_times_are_there_in_seconds_too(name: str) -> None:
    metrics = Metrics()
    metrics.record_commit(0.25, succeeded=True)
    metrics.record_maintenance(2.5, succeeded=True)
    text = metrics.to_prometheus_format()
    expected = {"commit": 0.25, "write": 0.0, "maintenance": 2.5}[name]
    assert f"volley_iceberg_{name}_seconds_total {expected}" in text


def test_the_page_of_metrics_is_that_of_the_code() -> None:
    text = (_DOCS / "reference" / "metrics.md").read_text()
    assert text == page(), "python -m tests.unit.metrics_page > docs/reference/metrics.md"


def test_every_metric_is_described_once() -> None:
    """OpenTelemetry makes an instrument of each description, and finds its values by its name."""
    names = sorted(family.name.removesuffix("_info") for family in exposed())
    assert names == sorted(f"volley_iceberg_{description.name}" for description in DESCRIPTIONS)
