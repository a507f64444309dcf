"""Measures what commits and loads of tables cost: by data files, by snapshots, by catalog; beside plain pyiceberg."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from benchmarks.benchmark import Limit, Run, benchmark
from benchmarks.lake import QUERY, Lake, commit, open_sink, write, write_epoch
from benchmarks.measure import medians, timed
from tests.servers.glue import MotoServer
from tests.servers.hive import HiveMetastore
from tests.servers.nessie import Nessie
from tests.servers.postgres import Postgres
from tests.servers.rest_fixture import RestFixture
from tests.servers.seaweed import SeaweedProcess
from tests.servers.shared import own_server
from tests.services.documented import documented
from tests.services.fault_proxy import Answer, FaultProxy, Server
from volley import Committer, IcebergSinkConfig, WriteResult
from volley.contracts.epoch import Epoch
from volley.iceberg import GlueCatalog, RestCatalog
from volley.iceberg.commit.committer import IcebergCommitter
from volley.iceberg.storage.values import S3Storage

_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])
_VOLLEY, _PLAIN = "Volley", "plain pyiceberg"


@benchmark(
    options={"commits": 5},
    cases={"files": (1, 10, 100, 1_000)},
    figures=("wall_ms", "cpu_ms"),
    bounds=[Limit("wall_ms", "ms", most=5_000, of=_VOLLEY)],
)
def snapshot_creation(run: Run) -> None:
    """One snapshot of 1 to 1,000 data files, beside plain pyiceberg (target: 5 s)."""
    lake, files = Lake(run.folder), int(run.case)
    ours, plain = (open_sink(lake.named(name), _SCHEMA) for name in ("ours", "plain"))
    own, other = list[dict[str, float]](), list[dict[str, float]]()
    # The peers commit in turn, each to a table of its own.
    for number in range(run.options["commits"]):
        own.append(timed(partial(commit, ours, number, _written(ours, number, files))))
        other.append(timed(partial(_append, partial(lake.table, "plain"), _written(plain, number, files))))
    run.record(_VOLLEY, **medians(own))
    run.record(_PLAIN, **medians(other))


@benchmark(
    options={"snapshots": (10, 50, 200, 1_000), "commits": 25},
    case="snapshots",
    figures=("cpu_ms", "wall_ms"),
    plots=("cpu_ms",),
)
def commit_cost(run: Run) -> None:
    """CPU of one commit at 10 to 1,000 retained snapshots, beside plain pyiceberg."""
    lake, commits, epoch = Lake(run.folder), run.options["commits"], 0
    committer = open_sink(lake.config, _SCHEMA)
    # One table grows; at each size both peers are measured, half of their commits before it and half after.
    for size in run.options["snapshots"]:
        for number in range(epoch, start := max(epoch, size - commits // 2)):
            commit(committer, number, _written(committer, number))
        run.record(_PLAIN, size, **_plain(lake, committer, f"plain_{size}", commits))
        epochs = range(start, epoch := start + commits)
        results = ((number, _written(committer, number)) for number in epochs)
        run.record(_VOLLEY, size, **medians(timed(partial(commit, committer, *each)) for each in results))


def _plain(lake: Lake, committer: Committer, name: str, commits: int) -> dict[str, float]:
    """Measure pyiceberg alone, on a table of its own that has the same snapshots."""
    catalog = lake.catalog()
    table = catalog.register_table(("b", name), lake.table().metadata_location)
    with table.transaction() as change:
        change.set_properties({"write.metadata.delete-after-commit.enabled": "false"})
    results = [_written(committer, number) for number in range(commits)]
    load = partial(catalog.load_table, ("b", name))
    figures = medians(timed(partial(_append, load, result)) for result in results)
    catalog.close()
    return figures


def _written(committer: Committer, epoch: int, files: int = 1) -> list[WriteResult]:
    batch = pa.record_batch([[epoch], ["a name"], [epoch]], schema=_SCHEMA)
    return [write(committer, epoch, [batch], task) for task in range(files)]


def _append(load: Callable[[], Table], results: Sequence[WriteResult]) -> None:
    """Append the same files by plain pyiceberg."""
    with load().transaction() as change, change.update_snapshot().fast_append() as snapshot:
        for result in results:
            snapshot.append_data_file(result.committables[0].data_file)


def _catalog(name: str, folder: Path, started: Callable[[Any], Any]) -> IcebergSinkConfig:
    """The configuration of a table in a catalog; its server, if it has one, is started in the folder."""
    match name:
        case "sqlite":
            return Lake(folder).config
        case "postgres":
            return replace(Lake(folder).config, catalog_uri=started(Postgres(folder)).uri)
        case "rest" | "hive":
            server = started(RestFixture(folder) if name == "rest" else HiveMetastore(folder))
            return replace(Lake(server.lake).config, catalog_uri=server.uri)
        case "seaweed":
            return cast(IcebergSinkConfig, started(SeaweedProcess(folder)).server.config("t"))
        case "glue":
            server = started(MotoServer(folder))
            address = {"glue.endpoint": server.uri, "glue.access-key-id": "id", "glue.secret-access-key": "secret"}
            return replace(Lake(server.lake).config, catalog=GlueCatalog("us-east-1"), properties=address)
    server = started(Nessie(folder, started(MotoServer(folder))))
    return documented("Nessie with a branch", nessie=server.uri, keycloak=server.keycloak, s3=server.s3)


@benchmark(
    options={"snapshots": 20, "loads": 50},
    cases={"catalog": ("sqlite", "postgres", "rest", "seaweed", "glue", "hive", "nessie")},
    figures=("wall_ms", "snapshots"),
    plots=("wall_ms",),
    bounds=[Limit("wall_ms", "ms", most=100)],
)
def catalog_load(run: Run) -> None:
    """Median time to load a table from each catalog, beside plain pyiceberg (target: 100 ms)."""
    with ExitStack() as running:

        def started(server: Any) -> Any:
            return running.enter_context(own_server(server))

        config = _catalog(str(run.case), run.folder, started)
        for number in range(run.options["snapshots"]):
            write_epoch(config, number, [pa.record_batch({"id": [number]})])
        plain = load_catalog("volley", **config.ref.to_properties())
        peers = {_VOLLEY: config.ref.load_catalog(), _PLAIN: plain}
        for peer, catalog in peers.items():
            load = partial(catalog.load_table, config.identifier)
            times = medians(timed(load) for _ in range(run.options["loads"]))
            run.record(peer, wall_ms=times["wall_ms"], snapshots=len(load().snapshots()))


_TOGETHER, _ALONE = "Volley, one commit", "Volley, a commit a table"
_Parts = Sequence[tuple[IcebergCommitter, Sequence[WriteResult]]]


def _one_by_one(epoch: int, parts: _Parts) -> None:
    for committer, results in parts:
        committer.commit(Epoch(QUERY, epoch), results)


def _together(epoch: int, parts: _Parts) -> None:
    parts[0][0].commit_together(Epoch(QUERY, epoch), parts)


def _opened(config: IcebergSinkConfig, schema: pa.Schema) -> IcebergCommitter:
    committer = open_sink(config, schema)
    assert isinstance(committer, IcebergCommitter)
    return committer


@contextmanager
def _late(upstream: str, seconds: float) -> Iterator[str]:
    """The address of a proxy that passes requests on so much later, in a process of its own."""
    processes = get_context("spawn")
    here, there = processes.Pipe()
    proxy = processes.Process(target=_serve_late, args=(upstream, seconds, there), daemon=True)
    proxy.start()
    yield here.recv()
    proxy.kill()


def _serve_late(upstream: str, seconds: float, told: Connection) -> None:
    def late(server: Server) -> Answer:
        time.sleep(seconds)
        return server()

    proxy = FaultProxy(upstream)
    for method in ("GET", "HEAD", "POST", "PUT"):
        proxy.arm(late, method, "", times=None)
    told.send(proxy.uri)
    threading.Event().wait()


def _away(config: IcebergSinkConfig, seconds: float, running: ExitStack) -> IcebergSinkConfig:
    """The same table, where each request to catalog and storage takes so much longer."""
    catalog, storage = config.ref.catalog, config.storage
    assert isinstance(catalog, RestCatalog)
    assert isinstance(storage, S3Storage)

    def behind(uri: str | None) -> str:
        return running.enter_context(_late(str(uri), seconds))

    far = replace(catalog, uri=behind(catalog.uri))
    storage = replace(storage, endpoint=behind(storage.endpoint))
    return replace(config, catalog_uri=None, credential=None, catalog=far, storage=storage)


@benchmark(
    options={"tables": 20, "epochs": 7},
    cases={"catalog": ("rest", "seaweed", "seaweed 50 ms away")},
    figures=("wall_ms", "cpu_ms"),
    plots=("wall_ms",),
)
def commit_of_tables(run: Run) -> None:
    """Median time to commit an epoch of 20 tables in one request, beside 20 commits, from a catalog near and far."""
    with ExitStack() as running:

        def started(server: Any) -> Any:
            return running.enter_context(own_server(server))

        name, _, distance = str(run.case).partition(" ")
        config = _catalog(name, run.folder, started)
        if distance:
            config = _away(config, float(distance.split()[0]) / 1e3, running)
        peers = {_ALONE: _one_by_one, _TOGETHER: _together}
        times: dict[str, list[dict[str, float]]] = {peer: [] for peer in peers}
        tables = {
            peer: [_opened(replace(config, table=f"{place}_{at}"), _SCHEMA) for at in range(run.options["tables"])]
            for place, peer in enumerate(peers)
        }
        for epoch in range(run.options["epochs"]):
            for peer, commits in peers.items():
                parts = [(each, _written(each, epoch)) for each in tables[peer]]
                times[peer].append(timed(partial(commits, epoch, parts)))
        for peer in peers:
            run.record(peer, **medians(times[peer][1:]))
