"""Debezium's engine and connectors of PostgreSQL and MariaDB, from Maven: captures to a file of lines, or to Kafka."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.apicurio import Apicurio
from tests.servers.downloads import class_path, jars, java
from tests.servers.mariadb import MariaDb
from tests.servers.process import ServerProcess

# The last version of each connector that can be had.
_VERSIONS = {"postgres": "3.6.1.Final", "mariadb": "3.5.0.Final"}
_CONVERTER = "io.apicurio:apicurio-registry-utils-converter:2.6.13.Final"


class Debezium:
    """An engine that captures a database.

    Args:
        folder: Where its offsets and log are, and `lines`.
        database: The settings that tell the connector its database, as `of_postgres` and `of_mariadb` return them.
        settings: More of the connector's, and of its converters; ``brokers`` = where to send records to, else they
            are written to `lines`.
    """

    def __init__(self, folder: Path, database: Mapping[str, str], settings: Mapping[str, str]) -> None:
        connector = "mariadb" if "mariadb" in database["connector.class"] else "postgres"
        version = _VERSIONS[connector]
        parts = ("debezium-api", "debezium-embedded", f"debezium-connector-{connector}")
        artifacts = [f"io.debezium:{part}:{version}" for part in parts]
        classes = jars(f"debezium-{connector}-{version}", *artifacts, _CONVERTER, source=_SOURCE)
        self.lines, self._offsets = folder / "changes.json", folder / "offsets"
        properties = {
            **{"name": "engine", "topic.prefix": "t", "snapshot.mode": "initial"},
            **{"offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore"},
            **{"offset.storage.file.filename": f"{folder}/offsets", "offset.flush.interval.ms": "0"},
            **{"schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory"},
            **{"schema.history.internal.file.filename": f"{folder}/schemas"},
            **{f"{part}.converter.schemas.enable": "false" for part in ("key", "value")},
            **database,
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

    def has_streamed(self) -> bool:
        """Whether what it has noted is behind the snapshot of PostgreSQL: else it begins again with that."""
        noted = self._offsets.read_bytes() if self._offsets.exists() else b""
        return b'"lsn"' in noted and b'"snapshot"' not in noted

    def has_noted(self, file: str, position: int) -> bool:
        """Return True if its noted offset is behind a position of the binary log, and in no incremental snapshot."""
        noted = self._offsets.read_bytes() if self._offsets.exists() else b""
        places = re.findall(rb'"file":"([^"]+)","pos":(\d+)', noted)
        is_behind = any((name.decode(), int(at)) >= (file, position) for name, at in places)
        return is_behind and b"incremental_snapshot" not in noted

    def wait_for(self, written: bytes, has: Callable[[bytes], bool] | None = None) -> None:
        """Wait until it has written something.

        Args:
            written: What it writes.
            has: Whether that was written; None = look into `lines`.
        """
        has = has or (lambda part: part in self.lines.read_bytes())
        self._process.wait_until(partial(has, written), f"Debezium has written {written!r}")

    def kill(self) -> None:
        """End it at once; what it has not noted as sent comes twice."""
        self._process.stop()


def of_postgres(uri: str) -> dict[str, str]:
    """The settings for a database of PostgreSQL, as `Postgres.database` returns it."""
    address = urlsplit(uri)
    return {
        **{"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput"},
        **{"database.hostname": str(address.hostname), "database.port": str(address.port)},
        **{"database.user": str(address.username), "database.password": str(address.password)},
        **{"database.dbname": address.path[1:]},
        **{"slot.name": f"s_{address.path[-20:]}", "publication.name": "debezium"},
    }


def of_mariadb(server: MariaDb, database: str) -> dict[str, str]:
    """The settings for a database of MariaDB."""
    return {
        **{"connector.class": "io.debezium.connector.mariadb.MariaDbConnector", "database.include.list": database},
        **{"database.hostname": server.host, "database.port": str(server.port)},
        **{"database.user": server.user, "database.password": server.password},
        **{"database.server.id": str(uuid.uuid4().int % 2**31 + 2), "database.ssl.mode": "disable"},
    }


def avro_by(registry: Apicurio) -> dict[str, str]:
    """The settings for messages in Avro, in Confluent's format."""
    settings = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": registry.uri.replace("/ccompat/v7", "/registry/v2"),
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.find-latest": "true",
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.use-id": "contentId",
    }
    return {f"{part}.converter{name}": value for part in ("key", "value") for name, value in settings.items()}


_SOURCE = Path(__file__).parent / "Debezium.java"
