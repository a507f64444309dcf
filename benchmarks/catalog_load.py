"""What loading a table costs on each catalog that can run here, beside plain pyiceberg."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog

from benchmarks.lake import write_epoch
from benchmarks.report import Report
from tests.servers.glue import MotoServer
from tests.servers.hive import HiveMetastore
from tests.servers.nessie import Nessie
from tests.servers.postgres import Postgres
from tests.servers.rest_fixture import RestFixture
from tests.servers.seaweed import SeaweedProcess
from volley import IcebergSinkConfig, IcebergStorage
from volley.iceberg import GlueCatalog, NessieCatalog
from volley.iceberg.catalogs.values import CATALOG_NAME

SUMMARY = "median time to load a table from each catalog, beside plain pyiceberg (target: 100 ms)"

_TARGET_MS = 100
_SCHEMA = pa.schema([("id", pa.int64())])


@dataclass(frozen=True)
class Load:
    """The median of one load, in milliseconds."""

    catalog: str
    peer: str
    snapshots: int
    wall_ms: float
    within_target: bool


def run(arguments: list[str]) -> None:
    """Start each server, fill a table, load it over and over."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks catalog_load", description=SUMMARY)
    parser.add_argument("--snapshots", type=int, default=20)
    parser.add_argument("--loads", type=int, default=50)
    asked = parser.parse_args(arguments)
    report = Report("catalog_load", "catalog", "peer", "median ms", f"< {_TARGET_MS} ms")
    with tempfile.TemporaryDirectory(prefix="volley-bench-") as work:
        for name, start in _SERVERS.items():
            folder = Path(work) / name
            folder.mkdir()
            with ExitStack() as running:
                for load in _measured(name, start(folder, running), asked.snapshots, asked.loads):
                    report.add(load, name, load.peer, f"{load.wall_ms:.1f}", "yes" if load.within_target else "no")
    report.print()


def _measured(name: str, config: IcebergSinkConfig, snapshots: int, loads: int) -> list[Load]:
    for number in range(snapshots):
        write_epoch(config, number, [pa.record_batch([[number]], schema=_SCHEMA)], _SCHEMA)
    plain = load_catalog(CATALOG_NAME, **config.ref.to_properties())
    peers = {"Volley": config.ref.load_catalog(), "plain pyiceberg": plain}
    return [_median(name, peer, catalog, config, loads) for peer, catalog in peers.items()]


def _median(name: str, peer: str, catalog: Catalog, config: IcebergSinkConfig, loads: int) -> Load:
    times = []
    for _ in range(loads):
        began = time.perf_counter()
        table = catalog.load_table(config.identifier)
        times.append((time.perf_counter() - began) * 1e3)
    median = statistics.median(times)
    return Load(name, peer, len(table.snapshots()), median, median < _TARGET_MS)


def _config(uri: str | None, lake: Path) -> IcebergSinkConfig:
    return IcebergSinkConfig(uri, namespace="b", table="loads", storage=IcebergStorage.Local(lake))


def _sqlite(folder: Path, running: ExitStack) -> IcebergSinkConfig:
    return _config(None, folder)


def _postgres(folder: Path, running: ExitStack) -> IcebergSinkConfig:
    server = Postgres(folder)
    running.callback(server.stop)
    return _config(server.start().uri, folder)


def _rest(folder: Path, running: ExitStack) -> IcebergSinkConfig:
    server = RestFixture(folder)
    running.callback(server.stop)
    return _config(server.start().uri, server.lake)


def _seaweed(folder: Path, running: ExitStack) -> IcebergSinkConfig:
    server = SeaweedProcess(folder)
    running.callback(server.stop)
    return server.start().config("loads")


def _glue(folder: Path, running: ExitStack) -> IcebergSinkConfig:
    server = MotoServer(folder)
    running.callback(server.stop)
    address = {"glue.endpoint": server.start().uri, "glue.access-key-id": "id", "glue.secret-access-key": "secret"}
    storage = IcebergStorage.Local(server.lake)
    return IcebergSinkConfig(
        namespace="b", table="loads", storage=storage, catalog=GlueCatalog("us-east-1"), properties=address
    )


def _hive(folder: Path, running: ExitStack) -> IcebergSinkConfig:
    server = HiveMetastore(folder)
    running.callback(server.stop)
    return _config(server.start().uri, server.lake)


def _nessie(folder: Path, running: ExitStack) -> IcebergSinkConfig:
    storage = MotoServer(folder)
    running.callback(storage.stop)
    storage.start()
    server = Nessie(folder, storage)
    running.callback(server.stop)
    server.start()
    catalog = NessieCatalog(
        server.uri,
        branch="dev",
        credential=f"{server.key}:{server.secret}",
        properties={"oauth2-server-uri": server.tokens},
    )
    files = IcebergStorage.S3("us-east-1", "warehouse", server.s3, access_key_id="id", secret_access_key="secret")
    return IcebergSinkConfig(namespace="b", table="loads", storage=files, catalog=catalog)


_SERVERS: dict[str, Callable[[Path, ExitStack], IcebergSinkConfig]] = {
    "sqlite": _sqlite,
    "postgres": _postgres,
    "rest": _rest,
    "seaweed": _seaweed,
    "glue": _glue,
    "hive": _hive,
    "nessie": _nessie,
}
