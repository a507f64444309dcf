"""Several tables in one commit: all have an epoch or none, whatever the catalog answers, to every reader."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.types import StringType

from tests.drivers import Drivers
from tests.iceberg import routed
from tests.iceberg.routed import Routed
from tests.recovery import routed_job
from tests.recovery.lake import QUERY, write
from tests.recovery.routed_job import FILES
from tests.recovery.together_job import ROWS, run, run_epochs, write_input
from tests.services import lakes
from tests.services.fault_proxy import (
    LIES,
    Answer,
    Exchange,
    Fault,
    FaultProxy,
    Request,
    Server,
    answer_with,
    kill,
    kind_of,
    lose_answer,
    lose_request,
)
from tests.services.lakes import SCHEMA, Lake, driver
from tests.services.test_modes_of_catalogs import objects_of
from tests.tiers import nightly, some
from volley import (
    CommitConflictError,
    CommitStateUnknownError,
    ConfigError,
    IcebergSink,
    IcebergSinkConfig,
    VolleyError,
)
from volley.contracts.epoch import Epoch
from volley.iceberg import RestCatalog, Upsert, remove_orphan_files
from volley.iceberg.commit.committer import IcebergCommitter
from volley.iceberg.pyiceberg_private.guarded import GuardedCatalog, TableChanges

pytestmark = pytest.mark.services

TOGETHER = "/transactions/commit"
ALONE = r"/tables/[^/]+$"


@dataclass(frozen=True)
class Tables:
    """Tables of one catalog, written through a proxy and read past it."""

    lake: Lake
    proxy: FaultProxy
    configs: list[IcebergSinkConfig]

    def drivers(self) -> list[IcebergCommitter]:
        return [driver(config) for config in self.configs]

    def commit(self, committers: list[IcebergCommitter], number: int) -> None:
        """Write and commit an epoch: one row a table."""
        written = [write(each, number, [number]) for each in committers]
        parts = [(each, results) for each, (_, results) in zip(committers, written, strict=True)]
        committers[0].commit_together(Epoch(QUERY, number), parts)

    def ids(self) -> list[list[int]]:
        return [self.lake.ids(config) for config in self.configs]

    def plain(self) -> list[Table]:
        return [self.lake.table(config) for config in self.configs]


# A start of Nessie takes minutes.
SERVERS = [
    pytest.param(lakes.rest, id="fixture"),
    pytest.param(lakes.seaweed, id="seaweed"),
    nightly(lakes.nessie, id="nessie"),
]


@pytest.fixture(params=SERVERS)
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    lake: Lake = request.param(request)
    catalog = lake.documented.ref.catalog
    assert isinstance(catalog, RestCatalog)
    with FaultProxy(catalog.uri) as proxy:
        behind = replace(catalog, uri=proxy.uri + urlsplit(catalog.uri).path, timeout=5.0)
        given = replace(lake.documented, catalog_uri=None, credential=None, catalog=behind)
        yield Tables(lake, proxy, [replace(given, table=f"t{uuid.uuid4().hex}") for _ in range(3)])


def test_an_epoch_is_one_request(tables: Tables) -> None:
    ours = tables.drivers()
    assert ours[0].group is not None
    assert ours[0].group == ours[1].group
    # Nessie makes a table by a commit.
    before = tables.proxy.asked("POST", ALONE)
    for number in range(3):
        tables.commit(ours, number)
    assert tables.ids() == [[0, 1, 2]] * 3
    assert [exchange.server for exchange in tables.proxy.asked("POST", TOGETHER) if exchange.client == 204][-3:] == [
        204
    ] * 3
    assert tables.proxy.asked("POST", ALONE) == before
    assert [each.last_epoch(QUERY) for each in tables.drivers()] == [2, 2, 2]


def test_a_catalog_that_announces_nothing_is_asked_until_it_answers(tables: Tables) -> None:
    if tables.lake.name != "seaweed":
        pytest.skip("it is known what this one takes")
    tables.proxy.arm(answer_with(503), "POST", TOGETHER)
    tables.proxy.arm(lose_request, "POST", TOGETHER)
    ours = tables.drivers()
    assert [ours[0].group is None for _ in range(2)] == [True, False]
    assert len(tables.proxy.asked("POST", TOGETHER)) == 3
    tables.proxy.arm(answer_with(404), "POST", TOGETHER)
    assert [ours[1].group is None for _ in range(2)] == [True, True]
    assert len(tables.proxy.asked("POST", TOGETHER)) == 4


@pytest.mark.parametrize("fault", some(LIES, kind_of), ids=lambda fault: fault.__name__)
def test_every_table_has_the_epoch_once_whatever_a_gateway_says(tables: Tables, fault: Fault) -> None:
    ours = tables.drivers()
    tables.commit(ours, 0)
    tables.proxy.arm(fault, "POST", TOGETHER)
    tables.commit(ours, 1)
    tables.commit(ours, 2)
    assert tables.ids() == [[0, 1, 2]] * 3


def test_a_table_that_another_writer_has_changed_is_tried_again_with_the_others(tables: Tables) -> None:
    ours = tables.drivers()
    tables.commit(ours, 0)

    def first(server: Server) -> Answer:
        tables.plain()[1].append(pa.table({"id": [50]}, schema=SCHEMA))
        return server()

    tables.proxy.arm(first, "POST", TOGETHER)
    tables.commit(ours, 1)
    assert tables.ids() == [[0, 1], [0, 1, 50], [0, 1]]
    tables.proxy.arm(first, "POST", TOGETHER, times=None)
    with pytest.raises(CommitConflictError):
        tables.commit(ours, 2)
    assert [ids[:2] for ids in tables.ids()] == [[0, 1]] * 3
    assert all(2 not in ids for ids in tables.ids())


def test_a_table_that_can_t_take_its_rows_keeps_the_epoch_from_all(tables: Tables) -> None:
    ours = tables.drivers()
    tables.commit(ours, 0)
    written = [write(each, 1, [1]) for each in ours]
    # Plain pyiceberg can't add a column on Nessie.
    third = tables.configs[2].ref.load()
    with third.update_schema() as update:
        update.rename_column("id", "number")
    with third.update_schema() as update:
        update.add_column("id", StringType())
    with pytest.raises(VolleyError) as caught:
        ours[0].commit_together(Epoch(QUERY, 1), [(each, part[1]) for each, part in zip(ours, written, strict=True)])
    assert not isinstance(caught.value, CommitStateUnknownError)
    assert tables.ids()[:2] == [[0], [0]]
    assert not any(exchange.client == 204 for exchange in tables.proxy.asked("POST", TOGETHER)[2:])


@dataclass
class Reader:
    """Reads tables all the time, one after the other."""

    answered: int = 0  # how many commits the catalog has answered
    rounds: list[tuple[int, list[int]]] = field(default_factory=list)  # with the epochs of each table, as it was read

    @property
    def half_seen(self) -> list[list[int]]:
        """The rounds in which a table lacked an epoch that one had which was read before it."""
        return [seen for _, seen in self.rounds if seen != sorted(seen)]

    @property
    def late(self) -> list[tuple[int, list[int]]]:
        """The rounds in which a table lacked an epoch whose commit was answered before."""
        return [(answered, seen) for answered, seen in self.rounds if min(seen) < answered]

    @contextmanager
    def reading(self, tables: Tables) -> Iterator[None]:
        stop, catalog = threading.Event(), tables.lake.open_plain()
        names = [config.identifier for config in tables.configs]

        def read() -> None:
            while not stop.is_set():
                # A table that is loaded later has the epochs of an earlier one, at least.
                for order in (names, names[::-1]):
                    answered = self.answered
                    self.rounds.append((answered, [_epochs_in(catalog.load_table(name)) for name in order]))

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def _told(tables: Tables) -> list[Exchange]:
    """The commits that met a fault."""
    return [exchange for exchange in tables.proxy.asked("POST", TOGETHER) if exchange.fault]


def _epochs_in(table: Table) -> int:
    """How many epochs a table has; by its mark, since Nessie shows one snapshot."""
    return int(table.properties.get(f"volley.epoch.{QUERY}", -1)) + 1


def test_what_a_reader_sees(tables: Tables) -> None:
    """An answered commit is in all tables; Nessie alone also changes them at one moment."""
    ours, reader = tables.drivers(), Reader()
    with reader.reading(tables):
        for number in range(15):
            tables.commit(ours, number)
            reader.answered += 1
    print(f"{tables.lake.name}: {len(reader.half_seen)} of {len(reader.rounds)} rounds saw half an epoch")
    assert len({tuple(seen) for _, seen in reader.rounds}) > 3
    assert reader.late == []
    if tables.lake.name == "nessie":
        assert reader.half_seen == []


def test_a_commit_whose_last_attempt_has_landed(tables: Tables) -> None:
    ours = tables.drivers()
    tables.commit(ours, 0)
    tables.proxy.arm(lose_request, "POST", TOGETHER, times=3)
    tables.proxy.arm(lose_answer, "POST", TOGETHER)
    tables.commit(ours, 1)
    tables.commit(ours, 2)
    assert tables.ids() == [[0, 1, 2]] * 3


def test_a_commit_that_is_never_answered_deletes_nothing(tables: Tables) -> None:
    ours = tables.drivers()
    tables.commit(ours, 0)
    tables.proxy.arm(lose_request, "POST", TOGETHER, times=4)
    with pytest.raises(CommitStateUnknownError) as caught:
        tables.commit(ours, 1)
    assert all(config.table_name in str(caught.value) for config in tables.configs)
    assert tables.ids() == [[0]] * 3
    tables.commit(tables.drivers(), 1)
    assert tables.ids() == [[0, 1]] * 3


@pytest.mark.parametrize("heals", [True, False], ids=["the rest lands", "the rest is refused"])
def test_a_catalog_that_makes_a_part_of_a_commit(tables: Tables, monkeypatch: pytest.MonkeyPatch, heals: bool) -> None:
    ours = tables.drivers()
    tables.commit(ours, 0)
    first, second = ours[0]._catalog, ours[1]._catalog
    assert isinstance(first, GuardedCatalog)
    real = first.commit_tables

    def make_one(changes: Sequence[TableChanges]) -> None:
        real(changes[:1])
        raise CommitFailedException("injected")

    def refuse(changes: Sequence[TableChanges]) -> None:
        raise CommitFailedException("injected")

    # The client of the first table that lacks the epoch sends the request.
    monkeypatch.setattr(first, "commit_tables", make_one)
    if heals:
        tables.commit(ours, 1)
    else:
        monkeypatch.setattr(second, "commit_tables", refuse)
        with pytest.raises(CommitStateUnknownError, match="a part of one commit") as caught:
            tables.commit(ours, 1)
        assert "start the job again" in str(caught.value.hint)
        assert tables.ids() == [[0, 1], [0], [0]]
        monkeypatch.undo()
        late = tables.drivers()
        lacking = [each for each in late if each.last_epoch(QUERY) == 0]
        tables.commit(lacking, 1)
    assert tables.ids() == [[0, 1]] * 3


def test_a_table_that_is_dropped_while_they_commit(tables: Tables) -> None:
    """The next start goes on, with the table made anew; what the failed commit has left is found as orphans."""
    ours = tables.drivers()
    tables.commit(ours, 0)
    files = [set(objects_of(table)) for table in tables.plain()]
    dropped = tables.configs[1]

    def drop(server: Server) -> Answer:
        tables.lake.open_plain().drop_table(dropped.identifier)
        return server()

    tables.proxy.arm(drop, "POST", TOGETHER)
    with pytest.raises(CommitStateUnknownError, match=rf"{dropped.table} not found"):
        tables.commit(ours, 1)
    tables.commit(tables.drivers(), 1)
    assert tables.ids() == [[0, 1], [1], [0, 1]]
    if tables.lake.name == "nessie":
        return  # nobody may delete its files
    for config, table, before in zip(tables.configs, tables.plain(), files, strict=True):
        if config is dropped and tables.lake.name == "rest":
            # The new table's files lie among those of the dropped one, which this catalog leaves.
            with pytest.raises(ConfigError, match="another table in the same folder") as caught:
                remove_orphan_files(config, 0)
            assert "if it was dropped" in str(caught.value.hint)
            continue
        remove_orphan_files(config, 0)
        left = {path for path in objects_of(table) if path.endswith(".parquet")}
        assert len(left) == len(tables.lake.ids(config))
        assert config is dropped or {path for path in before if path.endswith(".parquet")} <= left


def test_two_jobs_that_write_the_same_tables(tables: Tables) -> None:
    """Each epoch of each is in all tables once, in whichever order they name them."""
    errors: list[BaseException] = []

    def job(ours: list[IcebergCommitter], query: str, first: int) -> None:
        try:
            for number in range(5):
                parts = []
                for each in ours:
                    task = each.writer(Epoch(query, number)).open(0)
                    task.write(pa.record_batch({"id": [first + number]}, SCHEMA))
                    parts.append((each, [task.close()]))
                ours[0].commit_together(Epoch(query, number), parts)
        except BaseException as error:
            errors.append(error)

    jobs = [(tables.drivers(), QUERY, 0), (tables.drivers()[::-1], str(uuid.uuid4()), 100)]
    threads = [threading.Thread(target=job, args=arguments) for arguments in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert tables.ids() == [[*range(5), *range(100, 105)]] * 3


def test_branches_and_main_in_one_commit(tables: Tables) -> None:
    if tables.lake.name == "nessie":
        pytest.skip("its tables have no branches")
    tables.commit(tables.drivers(), 0)
    first, second, third = tables.configs
    ours = [driver(first), driver(second.with_branch("audit")), driver(third.with_branch("audit"))]

    def append(server: Server) -> Answer:
        tables.plain()[1].append(pa.table({"id": [50]}, schema=SCHEMA))
        return server()

    for number, fault in enumerate([lose_answer, answer_with(503), lose_request, append], 1):
        tables.proxy.arm(fault, "POST", TOGETHER)
        tables.commit(ours, number)
    assert tables.ids() == [[0, 1, 2, 3, 4], [0, 50], [0]]
    audits = [table.scan().use_ref("audit").to_arrow()["id"].to_pylist() for table in tables.plain()[1:]]
    assert [sorted(ids) for ids in audits] == [[0, 1, 2, 3, 4]] * 2


def test_columns_that_come_with_an_epoch(tables: Tables) -> None:
    """They are in all tables with its rows, once, whatever a gateway says."""
    tables.commit(tables.drivers(), 0)
    wider = pa.schema([*SCHEMA, ("more", pa.string())])
    ours = [driver(config, wider) for config in tables.configs]
    parts = []
    for each in ours:
        task = each.writer(Epoch(QUERY, 1)).open(0)
        task.write(pa.record_batch({"id": [1], "more": ["x"]}, wider))
        parts.append((each, [task.close()]))
    for fault in (answer_with(409), lose_answer):
        tables.proxy.arm(fault, "POST", TOGETHER)
    ours[0].commit_together(Epoch(QUERY, 1), parts)
    for config in tables.configs:
        assert tables.lake.rows(config) == [{"id": 0, "more": None}, {"id": 1, "more": "x"}]


@pytest.fixture
def shops(tables: Tables, tmp_path: Path) -> Iterator[Routed]:
    """Tables that a sink routes rows to, in a namespace of their own."""
    made = Routed(tmp_path)
    made.config = replace(tables.configs[0], namespace=f"n{uuid.uuid4().hex}", table="{shop}")
    yield made
    made.close()


def ids(tables: Tables, shops: Routed, *names: str) -> list[list[int]]:
    return [tables.lake.ids(replace(shops.config, table=name)) for name in names]


def test_a_routed_table_that_can_t_take_its_rows_is_named(tables: Tables, shops: Routed) -> None:
    driver = shops.driver()
    routed.run(driver, 0, routed.rows("a", 0) + routed.rows("b", 0) + routed.rows("c", 0))
    epoch, results = routed.write(driver, 1, routed.rows("a", 1) + routed.rows("b", 1) + routed.rows("c", 1))
    plain = replace(shops.config, table="b").ref.load()
    with plain.update_schema() as update:
        update.rename_column("price", "cost")
    with plain.update_schema() as update:
        update.add_column("price", StringType())
    with pytest.raises(VolleyError, match=rf"{shops.config.identifier[0]}\.b") as caught:
        driver.commit(epoch, results)
    assert not isinstance(caught.value, CommitStateUnknownError)
    driver.abort(epoch, results)
    assert ids(tables, shops, "a", "b", "c") == [[0], [0], [0]]
    with plain.update_schema() as update:
        update.delete_column("price")
    with plain.update_schema() as update:
        update.rename_column("cost", "price")
    alone = len(tables.proxy.asked("POST", ALONE))
    later = shops.driver()
    routed.run(later, 1, routed.rows("a", 1) + routed.rows("b", 1) + routed.rows("c", 1))
    assert ids(tables, shops, "a", "b", "c") == [[0, 1], [0, 1], [0, 1]]
    assert len(tables.proxy.asked("POST", ALONE)) == alone


def test_tables_are_committed_one_by_one_if_a_sink_parks_rows(tables: Tables, shops: Routed) -> None:
    parking = shops.driver(IcebergSink(shops.config).routed(on_error="park"))
    assert parking.group is None
    for number in range(2):
        routed.run(parking, number, routed.rows("a", number) + routed.rows("b", number))
    assert ids(tables, shops, "a", "b") == [[0, 1], [0, 1]]
    assert tables.proxy.asked("POST", TOGETHER) == []
    assert len(tables.proxy.asked("POST", ALONE)) >= 4


def test_two_sinks_that_write_to_one_table(tables: Tables, shops: Routed) -> None:
    """A table is once in a request: the rows of the second sink follow in another one."""
    own = driver(replace(shops.config, table="a"), routed.SCHEMA)
    many = shops.driver()
    for number in range(3):
        epoch, spread = routed.write(many, number, routed.rows("a", number) + routed.rows("b", number))
        task = own.writer(epoch).open(0)
        task.write(pa.RecordBatch.from_pylist(routed.rows("a", 100 + number), routed.SCHEMA))
        own.commit_together(epoch, [(own, [task.close()]), (many, spread)])
    assert ids(tables, shops, "a", "b") == [[0, 1, 2, 100, 101, 102], [0, 1, 2]]


class IgnoresCase(FaultProxy):
    """Before a catalog whose tables have names in lower case: takes those names in any case."""

    def exchange(self, request: Request) -> Answer | None:
        body = re.sub(rb'("identifier": ?\{[^}]*"name": ?)("[^"]*")', lambda m: m[1] + m[2].lower(), request.body)
        path = re.sub("/tables/[^/?]+", lambda match: match[0].lower(), request.path)
        return super().exchange(replace(request, path=path, body=body))


def test_two_sinks_that_write_to_one_table_under_two_names(tables: Tables, shops: Routed) -> None:
    with IgnoresCase(tables.proxy.uri) as proxy:
        catalog = shops.config.ref.catalog
        assert isinstance(catalog, RestCatalog)
        folding = replace(catalog, uri=proxy.uri + urlsplit(catalog.uri).path)
        shops.config = replace(shops.config, catalog=folding)
        many = shops.driver()
        routed.run(many, 0, routed.rows("a", 0) + routed.rows("b", 0))
        own = driver(replace(shops.config, table="A"), routed.SCHEMA)
        for number in range(1, 3):
            epoch, spread = routed.write(many, number, routed.rows("a", number) + routed.rows("b", number))
            task = own.writer(epoch).open(0)
            task.write(pa.RecordBatch.from_pylist(routed.rows("a", 100 + number), routed.SCHEMA))
            own.commit_together(epoch, [(own, [task.close()]), (many, spread)])
        assert ids(tables, shops, "a", "b") == [[0, 1, 2, 101, 102], [0, 1, 2]]


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("tables", SERVERS, indirect=True)
def test_twenty_tables_under_a_hundred_kills_and_lies(tables: Tables, seed: int) -> None:
    """Drivers die at any request, before or after the catalog has heard it, while a gateway lies; a reader looks on.

    Ten kills a seed, and as many lies.
    """
    dice, drivers = random.Random(seed), Drivers()
    many = replace(tables, configs=[replace(tables.configs[0], table=f"t{uuid.uuid4().hex}") for _ in range(20)])
    run_epochs(many.configs, 1)
    pids: list[int] = []

    def die(server: Server) -> None:
        os.kill(pids[-1], signal.SIGKILL)

    kills, epochs = 0, 1
    reader = Reader(answered=1)
    with reader.reading(many):
        while kills < 10 or len(_told(tables)) < 10:
            lies = dice.choices(LIES, k=2)
            for lie in lies:
                tables.proxy.arm(lie, "POST", TOGETHER)
            death = dice.choice([die, kill(lambda: pids[-1])])
            method, path = dice.choice([("POST", TOGETHER), ("GET", ".*")])
            tables.proxy.arm(death, method, path, skip=dice.randrange(2 if method == "POST" else 90))
            driver = drivers.start(run_epochs, many.configs, 2)
            pids.append(driver.pid or 0)
            kills += drivers.wait(driver) == -signal.SIGKILL
            tables.proxy.disarm()
            seen = [_epochs_in(table) for table in many.plain()]
            assert seen == seen[:1] * 20, kills
            epochs = reader.answered = seen[0]
            print(f"{kills} kills, {epochs} epochs")
    run_epochs(many.configs, 1)
    assert many.ids() == [list(range(epochs + 1))] * 20
    half = f"{len(reader.half_seen)} of {len(reader.rounds)} rounds saw half an epoch"
    print(f"{tables.lake.name}: {len(_told(tables))} lies, {epochs} epochs, {half}")
    assert reader.late == []


KILLS = [
    "before-files@0",
    "after-files@1",
    "between-commits@1",
    "before-commit@2",
    "after-commit@2",
    "before-checkpoint@3",
]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("tables", SERVERS, indirect=True)
def test_a_job_that_is_killed_at_every_point(tables: Tables, drivers: Drivers, tmp_path: Path) -> None:
    """After each death, the two tables and that of the dead letters have the same epochs."""
    files = 5
    write_input(tmp_path, files)
    first, second, letters = tables.configs
    configs = [first, second.with_commit_mode(Upsert("id", strategy="copy_on_write"))]
    for point in KILLS:
        drivers.die(point, run, tmp_path, configs, f"db.{letters.table}")
        epochs = [_epochs(tables.lake, config) for config in tables.configs]
        assert epochs == [epochs[0]] * 3, point
    run(tmp_path, configs, f"db.{letters.table}")
    assert [_epochs(tables.lake, config) for config in tables.configs] == [_shown(tables.lake, range(files))] * 3
    assert tables.lake.ids(first) == tables.lake.ids(second) == list(range(files * ROWS))
    bad = tables.lake.table(letters).scan().to_arrow()["payload"].to_pylist()
    assert sorted(bad) == [f'{{"id": "bad {number}"}}' for number in range(files)]
    assert _alone(tables) == []


def _alone(tables: Tables) -> list[Exchange]:
    """The commits of single tables; Nessie makes tables by such ones."""
    return [] if tables.lake.name == "nessie" else tables.proxy.asked("POST", ALONE)


def _shown(lake: Lake, epochs: range) -> list[str]:
    """The epochs of the snapshots that a catalog shows of a table that has these; Nessie shows the last one."""
    shown = epochs[-1:] if lake.name == "nessie" else epochs
    return [str(epoch) for epoch in shown]


def _epochs(lake: Lake, config: IcebergSinkConfig) -> list[str]:
    catalog = lake.open_plain()
    if not catalog.table_exists(config.identifier):
        return []
    snapshots = catalog.load_table(config.identifier).snapshots()
    epochs = [snapshot.summary["volley.epoch"] for snapshot in snapshots if snapshot.summary]
    # A new table of Nessie has a snapshot without rows.
    return [epoch for epoch in epochs if epoch is not None]


ROUTED = ["after-files@0", "before-commit@1", "after-commit@1", "after-route-2@2", "before-checkpoint@3"]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("tables", SERVERS, indirect=True)
@pytest.mark.parametrize("upsert", [False, True], ids=["append", "upsert"])
def test_a_job_of_many_tables_that_is_killed(tables: Tables, drivers: Drivers, tmp_path: Path, upsert: bool) -> None:
    """After each death, all tables that have rows of the last epoch have it, and none is ahead."""
    folder = f"n{uuid.uuid4().hex}"
    config = replace(tables.configs[0], namespace=[folder])
    routed_job.write_input(tmp_path)
    names = [f"t{number}" for number in range(5)]
    lake = replace(tables.lake, documented=replace(tables.lake.documented, namespace=[folder]))

    def last() -> set[str]:
        epochs = {name: _epochs(lake, replace(config, table=name)) for name in names}
        return {known[-1] for known in epochs.values() if known}

    for point in ROUTED:
        drivers.die(point, routed_job.main, tmp_path, upsert, "fail", config)
        assert len(last()) <= 1, point
    assert drivers.run(routed_job.main, tmp_path, upsert, "fail", config) == 0
    rows = pa.concat_tables([pq.read_table(path) for path in sorted((tmp_path / "in").iterdir())]).to_pylist()
    for name in names:
        expected = [row["id"] for row in rows if row["kind"] == name]
        if upsert:
            expected = sorted({row["key"]: row["id"] for row in rows if row["kind"] == name}.values())
        assert lake.ids(replace(config, table=name)) == expected
        assert _epochs(lake, replace(config, table=name)) == _shown(lake, range(max(0, int(name[1]) - 2), FILES))
    assert _alone(tables) == []
