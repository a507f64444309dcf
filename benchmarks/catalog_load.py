"""What loading a table costs on each catalog that can run here, beside plain pyiceberg."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from benchmarks.benchmark import benchmark
from benchmarks.lake import write_epoch
from benchmarks.run import Run
from tests.servers.glue import MotoServer
from tests.servers.hive import HiveMetastore
from tests.servers.nessie import Nessie
from tests.servers.postgres import Postgres
from tests.servers.rest_fixture import RestFixture
from tests.servers.seaweed import SeaweedProcess
from volley import IcebergSinkConfig, IcebergStorage
from volley.iceberg import GlueCatalog, NessieCatalog

_MOST_MS = 100
_SCHEMA = pa.schema([("id", pa.int64())])


class Servers:
    """Each catalog's server, started in a folder, with the configuration of a table there.

    Args:
        folder: Where they keep what they have.
        running: It stops them.
    """

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self._folder, self._running = folder, running

    def sqlite(self) -> IcebergSinkConfig:
        return _config(self._folder)

    def postgres(self) -> IcebergSinkConfig:
        return _config(self._folder, self._started(Postgres(self._folder)).uri)

    def rest(self) -> IcebergSinkConfig:
        server = self._started(RestFixture(self._folder))
        return _config(server.lake, server.uri)

    def seaweed(self) -> IcebergSinkConfig:
        config: IcebergSinkConfig = self._started(SeaweedProcess(self._folder)).config("loads")
        return config

    def glue(self) -> IcebergSinkConfig:
        server = self._started(MotoServer(self._folder))
        address = {"glue.endpoint": server.uri, "glue.access-key-id": "id", "glue.secret-access-key": "secret"}
        return replace(_config(server.lake), catalog=GlueCatalog("us-east-1"), properties=address)

    def hive(self) -> IcebergSinkConfig:
        server = self._started(HiveMetastore(self._folder))
        return _config(server.lake, server.uri)

    def nessie(self) -> IcebergSinkConfig:
        server = self._started(Nessie(self._folder, self._started(MotoServer(self._folder))))
        login, tokens = f"{server.key}:{server.secret}", {"oauth2-server-uri": server.tokens}
        catalog = NessieCatalog(server.uri, branch="dev", credential=login, properties=tokens)
        files = IcebergStorage.S3("us-east-1", "warehouse", server.s3, access_key_id="id", secret_access_key="secret")
        return replace(_config(self._folder), storage=files, catalog=catalog)

    def _started(self, server: Any) -> Any:
        self._running.callback(server.stop)
        # SeaweedFS returns what a client needs to know; the others return themselves.
        return server.start()


def _config(lake: Path, uri: str | None = None) -> IcebergSinkConfig:
    return IcebergSinkConfig(catalog_uri=uri, namespace="b", table="loads", storage=IcebergStorage.Local(lake))


_CATALOGS = ("sqlite", "postgres", "rest", "seaweed", "glue", "hive", "nessie")


@benchmark(
    options={"catalogs": _CATALOGS, "snapshots": 20, "loads": 50},
    cases="catalogs",
    case="catalog",
    figures=("wall_ms", "snapshots"),
    plots=("wall_ms",),
    bounds=lambda row: row.below("wall_ms", _MOST_MS, "ms"),
)
def catalog_load(run: Run) -> None:
    """Median time to load a table from each catalog, beside plain pyiceberg (target: 100 ms)."""
    with ExitStack() as running:
        config = getattr(Servers(run.folder, running), str(run.case))()
        for number in range(run.options["snapshots"]):
            write_epoch(config, number, [pa.record_batch([[number]], schema=_SCHEMA)])
        plain = load_catalog("volley", **config.ref.to_properties())
        peers = {"Volley": config.ref.load_catalog(), "plain pyiceberg": plain}
        for peer, catalog in peers.items():
            times = []
            for _ in range(run.options["loads"]):
                began = time.perf_counter()
                table = catalog.load_table(config.identifier)
                times.append((time.perf_counter() - began) * 1e3)
            run.record(peer, wall_ms=statistics.median(times), snapshots=len(table.snapshots()))
