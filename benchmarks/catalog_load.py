"""What loading a table costs on each catalog that can run here, beside plain pyiceberg."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from benchmarks.benchmark import benchmark
from benchmarks.lake import write_epoch
from benchmarks.rows import Bound, Row
from benchmarks.run import Run
from tests.servers.glue import MotoServer
from tests.servers.hive import HiveMetastore
from tests.servers.nessie import Nessie
from tests.servers.postgres import Postgres
from tests.servers.rest_fixture import RestFixture
from tests.servers.seaweed import SeaweedProcess
from volley import IcebergSinkConfig, IcebergStorage
from volley.iceberg import GlueCatalog, NessieCatalog, catalogs

_MOST_MS = 100
_SCHEMA = pa.schema([("id", pa.int64())])


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


def _bounds(rows: Sequence[Row]) -> Iterator[Bound]:
    for row in rows:
        yield row.below("wall_ms", _MOST_MS, "ms")


@benchmark(
    options={"catalogs": tuple(_SERVERS), "snapshots": 20, "loads": 50},
    cases="catalogs",
    case="catalog",
    figures=("wall_ms", "snapshots"),
    plots=("wall_ms",),
    bounds=_bounds,
)
def catalog_load(run: Run) -> None:
    """Median time to load a table from each catalog, beside plain pyiceberg (target: 100 ms)."""
    with ExitStack() as running:
        config = _SERVERS[str(run.case)](run.folder, running)
        for number in range(run.options["snapshots"]):
            write_epoch(config, number, [pa.record_batch([[number]], schema=_SCHEMA)], _SCHEMA)
        properties = {**config.source.to_properties(config.storage, config.warehouse), **config.properties}
        peers = {"Volley": catalogs.load_catalog(config), "plain pyiceberg": load_catalog("volley", **properties)}
        for peer, catalog in peers.items():
            times = []
            for _ in range(run.options["loads"]):
                began = time.perf_counter()
                table = catalog.load_table(config.identifier)
                times.append((time.perf_counter() - began) * 1e3)
            run.record(peer, wall_ms=statistics.median(times), snapshots=len(table.snapshots()))
