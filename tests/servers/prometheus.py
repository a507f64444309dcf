"""Prometheus' programs, from Debian's package."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import requests

from tests.servers.downloads import downloaded
from tests.servers.process import ServerProcess, answers, free_ports, needed


def promtool() -> Path:
    """The program that checks rules, and plays samples to them."""
    return downloaded("prometheus", _fetch) / "usr" / "bin" / "promtool"


def _fetch(folder: Path) -> None:
    get, unpack = needed("apt-get", "Prometheus comes from Debian"), needed("dpkg-deb", "Prometheus comes from Debian")
    subprocess.run([get, "download", "prometheus"], cwd=folder, check=True, capture_output=True)
    for package in folder.glob("*.deb"):
        subprocess.run([unpack, "--extract", package, folder], check=True)
        package.unlink()


class Prometheus:
    """A server that scrapes jobs, and evaluates rules, twice a second.

    Args:
        folder: Where it keeps its data and its log.
        rules: The text of its rules.
        targets: The hosts with ports to scrape.
    """

    def __init__(self, folder: Path, rules: str, targets: Sequence[str]) -> None:
        (port,) = free_ports(1)
        folder.mkdir()
        (folder / "rules.yml").write_text(rules)
        settings = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(folder / "rules.yml")],
            "scrape_configs": [{"job_name": "volley", "static_configs": [{"targets": list(targets)}]}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(settings))
        self._url = f"http://127.0.0.1:{port}"
        command = [
            str(promtool().parent / "prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--query.lookback-delta=5s",
        ]
        self._process = ServerProcess("Prometheus", command, folder / "log")
        self._process.start(answers(f"{self._url}/-/ready"))

    def firing(self) -> set[tuple[str, str]]:
        """The alerts that fire, each with the name of its job."""
        alerts = self._asked("alerts")["alerts"]
        return {
            (each["labels"]["alertname"], each["labels"]["job_name"]) for each in alerts if each["state"] == "firing"
        }

    def jobs(self, metric: str) -> set[str]:
        """The names of the jobs that have a metric now."""
        return {each["metric"]["job_name"] for each in self._asked("query", query=metric)["result"]}

    def stop(self) -> None:
        self._process.stop()

    def _asked(self, path: str, **parameters: str) -> Any:
        answer = requests.get(f"{self._url}/api/v1/{path}", params=parameters, timeout=10)
        assert answer.ok, answer.text
        return answer.json()["data"]
