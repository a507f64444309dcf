"""Tables whose catalog has to plan their scans: the same rows as by a plan of one's own, and refusals by name."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.iceberg.tables import FilesOf
from tests.recovery.lake import QUERY
from tests.servers.rest_fixture import RestFixture
from tests.services.fault_proxy import Answer, FaultProxy, Server, answer_with, named, with_config
from tests.services.lakes import driver
from volley import (
    CatalogError,
    ConfigError,
    Environment,
    Epoch,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    IcebergTable,
    Incremental,
    MaterializedView,
    MemorySink,
    MemorySource,
    RestCatalog,
    SchemaEvolution,
    StorageError,
    Upsert,
    count,
)
from volley.iceberg import Partitioning, SnapshotManager, remove_orphan_files
from volley.iceberg.read.whole import read_table

pytestmark = pytest.mark.services

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "city": pa.string(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "cents": pa.decimal128(9, 2),
        "x": pa.float64(),
        "op": pa.string(),
    }
)
PLAN = r"/plan$"


def row(id: int, city: str | None = "a", op: str = "u") -> dict[str, Any]:
    day = date(2026, 1, 1 + id % 3) if id % 4 else None
    at = datetime(2026, 1, 1 + id % 3, 5, tzinfo=UTC)
    x = float("nan") if id % 5 == 0 else id / 2
    return {"id": id, "city": city, "day": day, "at": at, "cents": Decimal(id), "x": x, "op": op}


@dataclass(frozen=True)
class Planned:
    """A table that is planned by the server behind the proxy, and by whoever reads it past the proxy."""

    proxy: FaultProxy
    config: IcebergSinkConfig
    past: IcebergSinkConfig

    def epoch(self, number: int, *rows: dict[str, Any]) -> None:
        ours = driver(self.past, SCHEMA)
        epoch = Epoch(QUERY, number)
        task = ours.writer(epoch).open(0)
        task.write(pa.RecordBatch.from_pylist([*rows], SCHEMA))
        ours.commit(epoch, [task.close()])

    def by_server(self, **settings: Any) -> list[dict[str, Any]]:
        return self._read(self.config, **settings)

    def by_client(self, **settings: Any) -> list[dict[str, Any]]:
        asked = len(self.plans)
        rows = self._read(self.past, **settings)
        assert len(self.plans) == asked
        return rows

    def _read(self, config: IcebergSinkConfig, **settings: Any) -> list[dict[str, Any]]:
        rows = read_table(replace(IcebergSourceConfig(config.ref), **settings), None).to_pylist()
        return sorted(rows, key=lambda row: str(row["id"]))

    @property
    def plans(self) -> list[Any]:
        return self.proxy.asked("POST", PLAN)


@pytest.fixture
def planned(request: pytest.FixtureRequest, rest_fixture_1_12: RestFixture) -> Iterator[Planned]:
    with FaultProxy(rest_fixture_1_12.uri) as proxy:
        proxy.arm(with_config({"scan-planning-mode": "server"}), "GET", r"/tables/[^/]+$", times=None)
        settings: dict[str, Any] = getattr(request, "param", {})
        config = IcebergSinkConfig(
            namespace=["db"],
            table=f"t{uuid.uuid4().hex}",
            storage=IcebergStorage.Local(rest_fixture_1_12.lake),
            catalog=RestCatalog(proxy.uri),
            **settings,
        )
        yield Planned(proxy, config, replace(config, catalog=RestCatalog(rest_fixture_1_12.uri), catalog_uri=None))


PARTS = [
    Partitioning.identity("city", "day", "cents"),
    Partitioning.time("at", granularity="hour"),
    Partitioning.bucket("id", n=4),
    Partitioning.truncate("city", width=2),
]
KINDS: dict[str, dict[str, Any]] = {
    "appended": {},
    "partitioned": {"partitioning": PARTS},
    "position deletes": {"commit_mode": Upsert("id", op_field="op", strategy="merge_on_read")},
    "vectors": {
        "commit_mode": Upsert("id", op_field="op", strategy="merge_on_read"),
        "table_properties": {"format-version": "3"},
    },
}
FILTERS = [
    "city = 'a'",
    "id > 3 and day >= '2026-01-02'",
    "at < timestamp '2026-01-02 05:00:00' or cents = 4",
    "x > 2.0",
    "city is null or id in (2, 5)",
    "not (city = 'a') and x <> 1.5",
]


@pytest.mark.parametrize("planned", KINDS.values(), ids=KINDS, indirect=True)
def test_rows_are_those_of_an_own_plan(planned: Planned) -> None:
    planned.epoch(0, *map(row, range(8)))
    planned.epoch(1, row(8, "b"), row(9, None), row(2, "b"))
    planned.epoch(2, row(10), row(3, op="d"))
    # The driver's next start has other deletes beside the first ones.
    planned.epoch(3, row(11, None), row(4, "c"))
    assert str(planned.by_server()) == str(planned.by_client())
    assert len(planned.plans) == 1
    for text in FILTERS:
        given, expected = (
            read(partition_filter=text, columns=["id", "city"]) for read in (planned.by_server, planned.by_client)
        )
        assert given == expected, text
    assert len(planned.plans) == 1 + len(FILTERS)


@pytest.mark.parametrize("columns", [["city"], ["id", "day"]])
def test_rows_of_deleted_keys_are_gone(planned: Planned, columns: list[str]) -> None:
    planned.epoch(0, *map(row, range(4)), row(4, "b"), row(5, None))
    files = FilesOf(planned.past.ref.load())
    keys = [{"city": "b", "id": 3, "day": row(3)["day"]}, {"city": None, "id": 4, "day": None}]
    files.commit(deletes=[files.keys(columns, keys, files.data([row(0)]))])
    # Rows that are written after a delete stay.
    planned.epoch(1, row(6, "b"), row(3, None))
    left = {"city": [0, 1, 2, 3, 3, 6], "id": [0, 1, 2, 3, 5, 6]}[columns[0]]
    assert [each["id"] for each in planned.by_server(columns=["id"])] == left
    assert str(planned.by_server()) == str(planned.by_client())
    for text in FILTERS:
        given, expected = (read(partition_filter=text) for read in (planned.by_server, planned.by_client))
        assert str(given) == str(expected), text


def test_deletes_of_no_column_are_refused(planned: Planned) -> None:
    planned.epoch(0, row(0), row(1))
    files = FilesOf(planned.past.ref.load())
    files.commit(deletes=[files.keys(["id"], [{"id": 1}], files.data([row(0)]))])

    def forget(body: dict[str, Any]) -> None:
        for delete in body["delete-files"]:
            del delete["equality-ids"]

    planned.proxy.arm(edited(forget), "POST", PLAN, times=None)
    with pytest.raises(StorageError, match="compares no column") as caught:
        planned.by_server()
    assert caught.value.hint


def test_who_asks_for_it(planned: Planned) -> None:
    """The table's answer, the catalog's settings, or the user; "client" is a plan of one's own."""
    planned.epoch(0, row(0))
    mode = {"scan-planning-mode": "server"}
    assert replace(planned, config=planned.past.with_properties(mode)).by_server()
    planned.proxy.disarm()
    planned.proxy.arm(edited(lambda body: body["overrides"].update(mode)), "GET", "/v1/config", times=None)
    assert planned.by_server()
    assert len(planned.plans) == 1
    planned.proxy.disarm()
    planned.proxy.arm(with_config({"scan-planning-mode": "client"}), "GET", r"/tables/[^/]+$", times=None)
    assert planned.by_server()
    assert len(planned.plans) == 1


def test_a_stream_reads_what_is_appended(planned: Planned, spark: SparkSession, tmp_path: Path) -> None:
    environment = Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))
    sink = MemorySink()

    def run() -> list[int]:
        source = IcebergSource(IcebergSourceConfig(planned.config.ref).with_columns(["id"]).with_mode(Incremental()))
        environment.from_source(source).to_sink(sink).execute("copy", once=True)
        return sorted(row["id"] for row in sink.rows())

    planned.epoch(0, row(0), row(1))
    assert run() == [0, 1]
    planned.epoch(1, row(2))
    planned.epoch(2, row(3), row(4))
    assert run() == [0, 1, 2, 3, 4]
    assert len(planned.plans) > 2


def test_a_table_that_is_joined(planned: Planned, spark: SparkSession, tmp_path: Path) -> None:
    environment = Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))
    planned.epoch(0, row(0, "a"), row(1, "b"))
    sink = MemorySink()
    cities = IcebergSource(IcebergSourceConfig(planned.config.ref).with_columns(["id", "city"]))
    orders = environment.from_source(MemorySource([{"order": 1, "id": 1}, {"order": 2, "id": 0}]))
    orders.join(cities, on="id").to_sink(sink).execute("join", once=True)
    assert sorted((row["order"], row["city"]) for row in sink.rows()) == [(1, "b"), (2, "a")]
    assert planned.plans


def test_a_snapshot_of_before_is_read_with_its_columns(planned: Planned) -> None:
    planned.epoch(0, row(0), row(1))
    first = planned.past.ref.load().metadata.snapshots[-1].snapshot_id
    SchemaEvolution("id long").rename("city", "town").apply(planned.past)
    planned.past.ref.load().append(pa.Table.from_pylist([{"id": 2}], pa.schema({"id": pa.int64()})))
    old = IcebergTable(planned.config.ref).at(first).to_arrow()
    assert sorted(old["id"].to_pylist()) == [0, 1]
    assert old["city"].to_pylist() == ["a", "a"]
    assert [row["id"] for row in planned.by_server(partition_filter="town is null")] == [2]


@pytest.mark.parametrize("planned", [KINDS["vectors"]], indirect=True)
def test_when_rows_were_changed_can_not_be_told(planned: Planned) -> None:
    planned.epoch(0, row(0))
    assert str(planned.by_server(include=["row_id"])) == str(planned.by_client(include=["row_id"]))
    with pytest.raises(ConfigError, match=r"column _last_updated_sequence_number .* can't be read"):
        planned.by_server(include=["last_updated_sequence_number"])


@pytest.mark.parametrize(
    "ask",
    [
        lambda ref: IcebergTable(ref).compact(),
        lambda ref: IcebergTable(ref).erase([{"id": 1}]),
        lambda ref: IcebergTable(ref).changes(None, None).to_arrow(),
        lambda ref: remove_orphan_files(ref, 0),
        lambda ref: SnapshotManager(ref).expire_snapshots("0s", retain_last=1),
    ],
    ids=["compact", "erase", "changes", "orphans", "expire"],
)
def test_what_needs_the_list_of_files_is_refused(planned: Planned, ask: Callable[[Any], object]) -> None:
    planned.epoch(0, row(0), row(1))
    planned.epoch(1, row(2))
    files = planned.past.ref.load().inspect.all_files().num_rows
    with pytest.raises(ConfigError, match="the catalog has to plan the scans of this table") as caught:
        ask(planned.config.ref)
    assert caught.value.hint
    assert planned.past.ref.load().inspect.all_files().num_rows == files
    assert [each["id"] for each in planned.by_server()] == [0, 1, 2]


def test_a_view_is_computed_anew(planned: Planned) -> None:
    planned.epoch(0, row(0), row(1, "b"))
    query = Environment().from_source(IcebergSource(IcebergSourceConfig(planned.config.ref)))
    into = IcebergSinkConfig.from_table(planned.past.ref.beside(f"{planned.past.table}_view"))
    view = MaterializedView("cities", query.key_by("city").aggregate(n=count()), into=into)

    def result() -> list[tuple[Any, ...]]:
        rows = into.ref.load().scan().to_arrow().to_pylist()
        return sorted((row["city"], row["n"]) for row in rows)

    view.refresh()
    assert result() == [("a", 1), ("b", 1)]
    planned.epoch(1, row(2, "b"))
    assert view.refresh().mode == "full"
    assert result() == [("a", 1), ("b", 2)]
    assert planned.plans


def test_rows_are_appended_and_not_changed(planned: Planned) -> None:
    planned.epoch(0, row(0))
    through = replace(planned, past=planned.config)
    through.epoch(1, row(1))
    upserts = planned.config.with_commit_mode(Upsert("id", op_field="op", strategy="merge_on_read"))
    with pytest.raises(ConfigError, match="the catalog has to plan the scans of this table"):
        replace(planned, past=upserts).epoch(2, row(1, "b"))
    assert [each["id"] for each in planned.by_client()] == [0, 1]


def edited(edit: Callable[[dict[str, Any]], object]) -> Any:
    """The server's answer, edited."""

    def answer(server: Server) -> Answer:
        told = server()
        body = json.loads(told.body)
        edit(body)
        return Answer(told.status, told.headers, json.dumps(body).encode())

    return named("edited", answer)


class Paging:
    """A server that takes its time to plan, and gives the tasks one by one."""

    def __init__(self, polls: int = 2) -> None:
        self.plan: dict[str, Any] = {}
        self.polls = polls

    def submitted(self, server: Server) -> Answer:
        self.plan = json.loads(server().body)
        return _json({"status": "submitted", "plan-id": "p"})

    def completed(self, server: Server) -> Answer:
        self.polls -= 1
        if self.polls > 0:
            return _json({"status": "submitted", "plan-id": "p"})
        return _json({"status": "completed", "plan-id": "p", "plan-tasks": ["0"]})

    def tasks(self, server: Server) -> Answer:
        tasks = self.plan["file-scan-tasks"]
        task = tasks.pop(0)
        numbers = task.pop("delete-file-references", [])
        deletes = [self.plan["delete-files"][number] for number in numbers]
        part = {"file-scan-tasks": [task], "plan-tasks": ["next"] if tasks else []}
        if deletes:
            task["delete-file-references"] = [*range(len(deletes))]
            part["delete-files"] = deletes
        return _json(part)


def _json(body: Any) -> Answer:
    return Answer(200, {"Content-Type": "application/json"}, json.dumps(body).encode())


@pytest.mark.parametrize("planned", [KINDS["position deletes"]], indirect=True)
def test_a_plan_that_is_made_later_and_comes_in_parts(planned: Planned) -> None:
    for number in range(4):
        planned.epoch(number, row(number), row(number + 1))
    server = Paging()
    planned.proxy.arm(server.submitted, "POST", PLAN, times=None)
    planned.proxy.arm(server.completed, "GET", r"/plan/p$", times=None)
    planned.proxy.arm(server.tasks, "POST", r"/tasks$", times=None)
    given = planned.by_server()
    asked = len(planned.proxy.asked("POST", r"/tasks$"))
    planned.proxy.disarm()
    assert str(given) == str(planned.by_client())
    assert asked == 4
    assert len(planned.proxy.asked("GET", r"/plan/p$")) == 2
    assert not planned.proxy.asked("DELETE", "/plan/")


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        ({"status": "failed", "error": {"message": "out of memory", "type": "X", "code": 500}}, "out of memory"),
        ({"status": "cancelled"}, "its plan is 'cancelled'"),
        ({"status": "completed", "file-scan-tasks": [{"data-file": {}}]}, "can't be read"),
        ({"status": "completed", "file-scan-tasks": [{}]}, "can't be read"),
        ({"status": "completed", "storage-credentials": [{"config": {}}]}, "can't be read: KeyError.*prefix"),
        (["status", "completed"], "can't be read"),
        (None, "can't be read"),
        ({}, "its plan is None"),
    ],
)
def test_a_catalog_that_does_not_plan(planned: Planned, answer: dict[str, Any], match: str) -> None:
    planned.epoch(0, row(0))
    planned.proxy.arm(named("answer", lambda server: _json(answer)), "POST", PLAN, times=None)
    with pytest.raises(CatalogError, match=match) as caught:
        planned.by_server()
    assert caught.value.hint


def test_a_plan_that_is_given_up_is_cancelled(planned: Planned) -> None:
    planned.epoch(0, row(0))
    planned.proxy.arm(edited(lambda body: body.update({"plan-tasks": ["more"]})), "POST", PLAN, times=None)
    planned.proxy.arm(answer_with(404), "POST", r"/tasks$", times=None)
    with pytest.raises(CatalogError, match="injected 404"):
        planned.by_server()
    assert len(planned.proxy.asked("DELETE", r"/plan/")) == 1


@pytest.mark.parametrize("status", [401, 419, 429, 503])
def test_a_catalog_that_is_busy_or_wants_another_token_is_asked_again(planned: Planned, status: int) -> None:
    planned.epoch(0, row(0))
    planned.proxy.arm(answer_with(status), "POST", PLAN)
    assert [each["id"] for each in planned.by_server()] == [0]
    assert len(planned.plans) == 2


def test_a_catalog_that_does_not_offer_plans(planned: Planned) -> None:
    planned.epoch(0, row(0))

    def without(body: dict[str, Any]) -> None:
        body["endpoints"] = [each for each in body["endpoints"] if not each.endswith("/plan")]

    planned.proxy.arm(edited(without), "GET", "/v1/config", times=None)
    with pytest.raises(CatalogError, match=r"does not offer a request that this needs: .*POST .*/plan"):
        planned.by_server()


RESIDUALS = {
    "a column that is not read": ({"type": "eq", "term": "city", "value": "b"}, [1, 3]),
    "of a day": ({"type": "gt-eq", "term": "day", "value": "2026-01-02"}, [1, 2, 5]),
    "nothing": (False, []),
    "null": ({"type": "not", "child": {"type": "is-null", "term": "day"}}, [1, 2, 3, 5]),
}


@pytest.mark.parametrize(("residual", "ids"), RESIDUALS.values(), ids=RESIDUALS)
@pytest.mark.parametrize("text", [None, "id >= 0"])
def test_rows_that_the_catalog_hides(planned: Planned, residual: Any, ids: list[int], text: str | None) -> None:
    """A catalog may want more to be left out than was asked for."""
    planned.epoch(0, *(row(id, "ab"[id % 2]) for id in range(6) if id != 5), row(5, "c"))

    def hide(body: dict[str, Any]) -> None:
        for task in body["file-scan-tasks"]:
            task["residual-filter"] = copy.deepcopy(residual)

    planned.proxy.arm(edited(hide), "POST", PLAN, times=None)
    assert [each["id"] for each in planned.by_server(columns=["id"], partition_filter=text)] == ids


def test_tasks_leave_out_what_the_catalog_hides(planned: Planned, spark: SparkSession, tmp_path: Path) -> None:
    planned.epoch(0, row(0), row(1, "b"), row(2, None))

    def hide(body: dict[str, Any]) -> None:
        for task in body["file-scan-tasks"]:
            task["residual-filter"] = {"type": "not-eq", "term": "city", "value": "b"}

    planned.proxy.arm(edited(hide), "POST", PLAN, times=None)
    sink = MemorySink()
    environment = Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))
    source = IcebergSource(IcebergSourceConfig(planned.config.ref).with_columns(["id"]))
    environment.from_source(source).to_sink(sink).execute("copy", once=True)
    # Rows of which the catalog hides b: null is not known to differ from it, so it is hidden too.
    assert [each["id"] for each in sink.rows()] == [0]
