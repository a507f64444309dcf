"""Apicurio Registry 3.3.3, which speaks Confluent's protocol, in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.servers.downloads import artifact, java_21
from tests.servers.process import ServerProcess, answers, free_ports

_ARTIFACT = "io.apicurio:apicurio-registry-app:3.3.3:tar.gz:all"


class Apicurio:
    """The registry.

    Args:
        folder: Where its log is.
    """

    def __init__(self, folder: Path) -> None:
        port, management = free_ports(2)
        self.uri = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        jar = next(artifact("apicurio-registry-3.3.3", _ARTIFACT).rglob("quarkus-run.jar"))
        settings: dict[str, Any] = {
            **{"quarkus.http.host": "127.0.0.1", "quarkus.http.port": port},
            **{"quarkus.management.host": "127.0.0.1", "quarkus.management.port": management},
        }
        options = ["-Xmx512m", "-XX:+UseSerialGC", *(f"-D{name}={value}" for name, value in settings.items())]
        self._process = ServerProcess("Apicurio", [java_21(), *options, "-jar", str(jar)], folder / "apicurio.log")

    def start(self) -> Apicurio:
        self._process.start(answers(f"{self.uri}/subjects"))
        return self

    def stop(self) -> None:
        self._process.stop()

    def client(self) -> Any:
        """Return Confluent's client."""
        from confluent_kafka.schema_registry import SchemaRegistryClient

        return SchemaRegistryClient({"url": self.uri})
