"""Jobs that start at the same moment on a catalog that has nothing yet: each makes what it needs, or finds it made."""

from __future__ import annotations

import multiprocessing
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.servers.postgres import Postgres
from tests.services.lakes import SCHEMA, driver
from tests.tiers import some
from volley import Epoch, IcebergSinkConfig, IcebergStorage

JOBS = 4
ROUNDS = 5

_barriers: list[Barrier] = []


def meet_at(barrier: Barrier) -> None:
    _barriers.append(barrier)


def start(config: IcebergSinkConfig, number: int) -> None:
    """A job in a process of its own: it opens its table when all others do, and commits one row."""
    _barriers[0].wait(120)
    committer = driver(config)
    epoch = Epoch(str(uuid.uuid4()), 0)
    task = committer.writer(epoch).open(0)
    task.write(pa.record_batch({"id": [number]}, SCHEMA))
    committer.commit(epoch, [task.close()])


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(JOBS, context, meet_at, (context.Barrier(JOBS),)) as pool:
        yield pool


def sqlite(request: pytest.FixtureRequest, folder: Path) -> str:
    return f"sqlite:///{folder}/catalog.db"


def postgres(request: pytest.FixtureRequest, folder: Path) -> str:
    """A database without tables on the server."""
    server: Postgres = request.getfixturevalue("postgres")
    return server.database()


@pytest.mark.parametrize("branch", some(["main", "audit"]))
@pytest.mark.parametrize("catalog", [sqlite, pytest.param(postgres, marks=pytest.mark.services)])
def test_no_job_is_in_anothers_way(
    catalog: Callable[[pytest.FixtureRequest, Path], str],
    branch: str,
    processes: ProcessPoolExecutor,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        uri = catalog(request, folder)
        storage = IcebergStorage.Local(str(folder))
        config = IcebergSinkConfig(
            catalog_uri=uri, namespace=["db", "raw"], table="events", storage=storage, branch=branch
        )
        jobs = [processes.submit(start, config, job) for job in range(JOBS)]
        failures = [str(job.exception()) for job in jobs if job.exception()]
        assert failures == []
        with closing(SqlCatalog("volley", uri=uri)) as reader:
            table = reader.load_table("db.raw.events")
        assert sorted(table.scan().use_ref(branch).to_arrow()["id"].to_pylist()) == list(range(JOBS))
        # A branch begins at one empty snapshot, whichever job makes it.
        assert len(table.snapshots()) == JOBS + (branch != "main")
