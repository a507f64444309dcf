"""What loading a table costs on each catalog that can run here, beside plain pyiceberg."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from benchmarks.benchmark import Limit, Run, benchmark, within
from benchmarks.lake import Lake, write_epoch
from benchmarks.measure import medians, timed
from tests.servers.glue import MotoServer
from tests.servers.hive import HiveMetastore
from tests.servers.nessie import Nessie
from tests.servers.postgres import Postgres
from tests.servers.rest_fixture import RestFixture
from tests.servers.seaweed import SeaweedProcess
from volley import IcebergSinkConfig, IcebergStorage
from volley.iceberg import GlueCatalog, NessieCatalog

_SCHEMA = pa.schema([("id", pa.int64())])


def _postgres(folder: Path, started: Callable[..., Any]) -> IcebergSinkConfig:
    return replace(Lake(folder).config, catalog_uri=started(Postgres(folder)).uri)


def _on(server_type: Callable[[Path], Any], folder: Path, started: Callable[..., Any]) -> IcebergSinkConfig:
    server = started(server_type(folder))
    return replace(Lake(server.lake).config, catalog_uri=server.uri)


def _glue(folder: Path, started: Callable[..., Any]) -> IcebergSinkConfig:
    server = started(MotoServer(folder))
    address = {"glue.endpoint": server.uri, "glue.access-key-id": "id", "glue.secret-access-key": "secret"}
    return replace(Lake(server.lake).config, catalog=GlueCatalog("us-east-1"), properties=address)


def _nessie(folder: Path, started: Callable[..., Any]) -> IcebergSinkConfig:
    server = started(Nessie(folder, started(MotoServer(folder))))
    login, tokens = f"{server.key}:{server.secret}", {"oauth2-server-uri": server.tokens}
    catalog = NessieCatalog(server.uri, branch="dev", credential=login, properties=tokens)
    files = IcebergStorage.S3("us-east-1", "warehouse", server.s3, access_key_id="id", secret_access_key="secret")
    return replace(Lake(folder).config, storage=files, catalog=catalog)


_CATALOGS: dict[str, Callable[[Path, Callable[..., Any]], IcebergSinkConfig]] = {
    "sqlite": lambda folder, _: Lake(folder).config,
    "postgres": _postgres,
    "rest": partial(_on, RestFixture),
    # SeaweedFS returns what a client needs to know; the others return themselves.
    "seaweed": lambda folder, started: started(SeaweedProcess(folder)).config("t"),
    "glue": _glue,
    "hive": partial(_on, HiveMetastore),
    "nessie": _nessie,
}
"""The configuration of a table for each catalog, given a folder for its server, and what starts that."""


@benchmark(
    options={"catalogs": tuple(_CATALOGS), "snapshots": 20, "loads": 50},
    cases="catalogs",
    case="catalog",
    figures=("wall_ms", "snapshots"),
    plots=("wall_ms",),
    bounds=within(Limit("wall_ms", "ms", most=100)),
)
def catalog_load(run: Run) -> None:
    """Median time to load a table from each catalog, beside plain pyiceberg (target: 100 ms)."""
    with ExitStack() as running:

        def started(server: Any) -> Any:
            running.callback(server.stop)
            return server.start()

        config = _CATALOGS[str(run.case)](run.folder, started)
        for number in range(run.options["snapshots"]):
            write_epoch(config, number, [pa.record_batch([[number]], schema=_SCHEMA)])
        plain = load_catalog("volley", **config.ref.to_properties())
        peers = {"Volley": config.ref.load_catalog(), "plain pyiceberg": plain}
        for peer, catalog in peers.items():
            load = partial(catalog.load_table, config.identifier)
            times = medians(timed(load) for _ in range(run.options["loads"]))
            run.record(peer, wall_ms=times["wall_ms"], snapshots=len(load().snapshots()))
