"""Debezium's embedded engine on a slot of PostgreSQL, without a sink: it drops what it receives."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.run import Run
from tests.servers.downloads import class_path, jars, java
from volley import PostgresSource

_VERSION = "3.4.1.Final"
_ARTIFACTS = ("debezium-embedded", "debezium-connector-postgres")


def receive(run: Run, source: PostgresSource, warm_up: int) -> None:
    """Measure how it receives the changes of a source's slot, which exists, behind so many that warm it up."""
    folder = jars(
        f"debezium-{_VERSION}",
        *(f"io.debezium:{name}:{_VERSION}" for name in _ARTIFACTS),
        source=Path(__file__).with_name("Debezium.java"),
    )
    settings = {
        "name": "benchmark",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": run.folder / "offsets",
        "topic.prefix": "benchmark",
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "no_data",
        "tombstones.on.delete": "false",
        "database.hostname": source.host,
        "database.port": source.port,
        "database.user": source.user,
        "database.password": source.password,
        "database.dbname": source.database,
        "slot.name": source.slot_name,
        "publication.name": source.publication,
        "table.include.list": ",".join(source.tables or ()),
    }
    properties, started = run.folder / "debezium.properties", run.folder / "started"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [java(), "-cp", class_path(folder), "Debezium", str(properties), str(warm_up), str(run.rows)]

    def work() -> None:
        subprocess.run([*command, str(started)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    run.measure(work, start=started)
