"""Debezium's engine and its connector of PostgreSQL, from Maven: writes what it captures to a file of lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.downloads import class_path, jars, java
from tests.servers.process import ServerProcess

_VERSION = "3.6.1.Final"
_PARTS = ("debezium-api", "debezium-embedded", "debezium-connector-postgres")


class Debezium:
    """An engine that captures a database of PostgreSQL.

    Args:
        folder: Where its offsets and log are, and `lines`.
        uri: The database, as `Postgres.database` returns it.
        settings: More of the connector's, and of its converter's.
    """

    def __init__(self, folder: Path, uri: str, settings: Mapping[str, str]) -> None:
        classes = jars(f"debezium-{_VERSION}", *(f"io.debezium:{part}:{_VERSION}" for part in _PARTS), source=_SOURCE)
        address = urlsplit(uri)
        self.lines = folder / "changes.json"
        properties = {
            **{"name": "engine", "connector.class": "io.debezium.connector.postgresql.PostgresConnector"},
            **{"offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore"},
            **{"offset.storage.file.filename": f"{folder}/offsets", "offset.flush.interval.ms": "0"},
            **{"database.hostname": str(address.hostname), "database.port": str(address.port)},
            **{"database.user": str(address.username), "database.password": str(address.password)},
            **{"database.dbname": address.path[1:], "topic.prefix": "t", "plugin.name": "pgoutput"},
            **{"slot.name": f"s_{address.path[-20:]}", "publication.name": "debezium", "snapshot.mode": "initial"},
            **settings,
        }
        (folder / "engine.properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        command = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-cp", class_path(classes), "Debezium"]
        command += [f"{folder}/engine.properties", str(self.lines)]
        self._process = ServerProcess("Debezium", command, folder / "log", {}, None)

    def start(self) -> Debezium:
        """Start it, or start it again where it ended."""
        self._process.start(self.lines.exists)
        return self

    def kill(self) -> None:
        """End it at once; what it has not noted as sent comes twice."""
        self._process.stop()


_SOURCE = Path(__file__).parent / "Debezium.java"
