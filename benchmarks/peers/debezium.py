"""Debezium's embedded engine on PostgreSQL and MariaDB, without a sink: it drops what it receives."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.run import Run
from tests.servers.downloads import class_path, jars, java
from volley import PostgresSource

# The last version of MariaDB's connector that can be had.
_VERSIONS = {"postgres": "3.4.1.Final", "mariadb": "3.5.0.Final"}
_CONNECTORS = {"postgres": "postgresql.PostgresConnector", "mariadb": "mariadb.MariaDbConnector"}
_FEW = 9_000


def receive(run: Run, source: PostgresSource, warm_up: int) -> None:
    """Measure how it receives the changes of a source's slot, which exists, behind so many that warm it up."""
    settings = {
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "disabled",
        "database.dbname": source.database,
        "slot.name": source.slot_name,
        "publication.name": source.publication,
        "table.include.list": ",".join(source.tables or ()),
    }
    address = {name: getattr(source, name) for name in ("host", "port", "user", "password")}
    _measure(run, _command(run, "postgres", address, settings), warm_up)


def receive_binlog(
    run: Run, address: Mapping[str, Any], table: str, change: Callable[[int], None], warm_up: int
) -> None:
    """Measure how it receives changes of a table of MariaDB, behind so many that warm it up.

    Args:
        change: Makes so many changes, a multiple of 9,000.
    """
    settings = {
        "database.server.id": 4_712,
        "database.ssl.mode": "disable",
        "table.include.list": table,
        "include.schema.changes": "false",
        "offset.flush.interval.ms": 0,
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": run.folder / "schemas",
    }
    command = _command(run, "mariadb", address, settings)
    # It goes on where it ended: nothing but a first run gives it a place in the log.
    with subprocess.Popen([*command, "0", str(_FEW), str(run.folder / "placed")], **_SILENT) as placed:
        while placed.poll() is None:
            change(_FEW)
    assert not placed.returncode, "Debezium failed"
    change(warm_up)
    change(run.rows)
    _measure(run, command, warm_up)


_SILENT: Mapping[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def _measure(run: Run, command: list[str], warm_up: int) -> None:
    started = run.folder / "started"
    whole = [*command, str(warm_up), str(run.rows), str(started)]
    run.measure(lambda: subprocess.run(whole, check=True, **_SILENT), start=started)


def _command(run: Run, database: str, address: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return what starts the engine; the changes that warm it up, those that are measured, and a file come behind."""
    version = _VERSIONS[database]
    parts = ("debezium-embedded", f"debezium-connector-{database}")
    source = Path(__file__).with_name("Debezium.java")
    artifacts = (f"io.debezium:{part}:{version}" for part in parts)
    folder = jars(f"debezium-{database}-{version}-dropped", *artifacts, source=source)
    names = {"host": "hostname", "port": "port", "user": "user", "password": "password"}
    own = {
        "name": "benchmark",
        "connector.class": f"io.debezium.connector.{_CONNECTORS[database]}",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": run.folder / "offsets",
        "topic.prefix": "benchmark",
        "snapshot.mode": "no_data",
        "tombstones.on.delete": "false",
        **{f"database.{names[name]}": value for name, value in address.items()},
    }
    properties = run.folder / "debezium.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in {**own, **settings}.items()))
    return [java(), "-cp", class_path(folder), "Debezium", str(properties)]
