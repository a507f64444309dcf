"""The alert rules in docs/monitoring, by Prometheus' own tool: who is called when, and when nobody is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.processes import ROOT
from tests.servers.prometheus import promtool
from tests.unit.metrics_page import exposed_text

RULES = ROOT / "docs" / "monitoring" / "alerts.yml"
PLAYED = Path(__file__).parent / "alerts.yml"


# The tool comes from Debian.
pytestmark = pytest.mark.services


def tool(*arguments: str | Path, given: str | None = None) -> str:
    """What promtool prints; it must find nothing wrong."""
    done = subprocess.run([promtool(), *arguments], input=given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_call_for_jobs_in_trouble_and_for_no_others(tmp_path: Path) -> None:
    played = yaml.safe_load(PLAYED.read_text())
    (tmp_path / "played.yml").write_text(yaml.safe_dump({"rule_files": [str(RULES)], **played}))
    tool("test", "rules", tmp_path / "played.yml")


def test_each_rule_fires_in_a_test() -> None:
    rules = {rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}
    steps = [step for test in yaml.safe_load(PLAYED.read_text())["tests"] for step in test["alert_rule_test"]]
    assert {step["alertname"] for step in steps if step["exp_alerts"]} == rules


def test_the_rules_are_well_formed() -> None:
    assert "13 rules found" in tool("check", "rules", RULES)


def test_the_queries_of_the_dashboard_are_well_formed(tmp_path: Path) -> None:
    panels = json.loads((RULES.parent / "grafana.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    asked = [each.replace("$__rate_interval", "5m").replace("$job", ".*") for each in queries]
    rules = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(asked)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(queries)} rules found" in tool("check", "rules", tmp_path / "rules.yml")


def test_prometheus_takes_the_metrics_of_a_job() -> None:
    """The tool's remarks on names are left alone: they are public."""
    done = subprocess.run([promtool(), "check", "metrics"], input=exposed_text(), capture_output=True, text=True)
    assert "error while linting" not in done.stderr
