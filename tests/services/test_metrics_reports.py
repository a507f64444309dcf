"""Reports of commits and scans that a REST catalog gets: read by Iceberg's own parser, in its REST fixture, which takes
those that it understands; compared with what the table itself tells."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog as load_plain
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from tests.recovery.lake import write
from tests.servers.rest_fixture import RestFixture
from tests.services.fault_proxy import Answer, Fault, FaultProxy, Request, answer_with, hold_request, lose_request
from tests.services.lakes import driver
from tests.waiting import wait_until
from volley import (
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    IcebergSourceConfig,
    IcebergStorage,
    MemorySource,
    RestCatalog,
)
from volley.iceberg import IcebergTable
from volley.iceberg.read.whole import read_table


class Listening(FaultProxy):
    """Keeps the reports, with what the server answered."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.reports: list[tuple[str, int | None, dict[str, Any]]] = []

    def exchange(self, request: Request) -> Answer | None:
        answer = super().exchange(request)
        if request.path.endswith("/metrics"):
            table = request.path.split("/")[-2]
            self.reports.append((table, answer.status if answer else None, json.loads(request.body)))
        return answer

    def of(self, table: str, kind: str, count: int) -> list[dict[str, Any]]:
        """So many reports of a table, once they are there; all were understood."""

        def those() -> list[dict[str, Any]]:
            assert {status for _, status, _ in self.reports} <= {204}
            return [body for name, _, body in self.reports if name == table and body["report-type"] == kind]

        wait_until(lambda: len(those()) >= count, 20, f"{count} reports of {table}")
        assert len(those()) == count
        return those()


@dataclass(frozen=True)
class Reported:
    proxy: Listening
    config: IcebergSinkConfig
    fixture: RestFixture

    def table(self) -> Table:
        """The table as plain pyiceberg sees it, past the proxy."""
        return load_plain("other", type="rest", uri=self.fixture.uri).load_table(self.config.identifier)


@pytest.fixture
def reported(rest_fixture: RestFixture) -> Iterator[Reported]:
    proxy = Listening(rest_fixture.uri)
    with proxy:
        storage, name = IcebergStorage.Local(rest_fixture.lake), f"t{uuid.uuid4().hex}"
        config = IcebergSinkConfig(namespace="db", table=name, storage=storage, catalog=RestCatalog(proxy.uri))
        yield Reported(proxy, config, rest_fixture)


def values(report: dict[str, Any]) -> dict[str, int]:
    """The counters of a report."""
    return {name: metric["value"] for name, metric in report["metrics"].items() if "value" in metric}


def test_each_commit_is_reported(reported: Reported) -> None:
    ours = driver(reported.config)
    for number, ids in enumerate(([1, 2, 3], [4], [5, 6])):
        ours.commit(*write(ours, number, ids))
    reports = reported.proxy.of(reported.config.table, "commit-report", 3)
    snapshots = reported.table().metadata.snapshots
    assert [report["snapshot-id"] for report in reports] == [snapshot.snapshot_id for snapshot in snapshots]
    assert [report["sequence-number"] for report in reports] == [1, 2, 3]
    assert {report["table-name"] for report in reports} == {reported.config.table_name}
    assert {report["operation"] for report in reports} == {"append"}
    assert [values(report)["added-records"] for report in reports] == [3, 1, 2]
    assert [values(report)["total-records"] for report in reports] == [3, 4, 6]
    assert [values(report)["added-data-files"] for report in reports] == [1, 1, 1]
    files = reported.table().inspect.files()["file_size_in_bytes"].to_pylist()
    assert values(reports[-1])["total-files-size-bytes"] == sum(files)
    assert reports[0]["metadata"]["engine-name"] == "volley"
    timer = reports[0]["metrics"]["total-duration"]
    assert (timer["count"], timer["time-unit"]) == (1, "nanoseconds")
    assert timer["total-duration"] > 0


def test_what_a_compaction_removes_is_reported(reported: Reported) -> None:
    ours = driver(reported.config)
    for number in range(3):
        ours.commit(*write(ours, number, [number]))
    IcebergTable(reported.config.ref).compact()
    report = reported.proxy.of(reported.config.table, "commit-report", 4)[-1]
    counted = values(report)
    assert report["operation"] == "replace"
    assert (counted["removed-data-files"], counted["added-data-files"], counted["total-data-files"]) == (3, 1, 1)


def test_each_table_of_one_commit_is_reported(reported: Reported, spark: SparkSession, tmp_path: Path) -> None:
    environment = Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))
    names = [f"{reported.config.table}_{number}" for number in range(3)]
    rows = [{"id": number, "to": name} for number, name in enumerate(names)]
    sink = IcebergSink(reported.config).routed("{to}", omit=["to"])
    environment.from_source(MemorySource(rows)).to_sink(sink).execute("job")
    assert len(reported.proxy.asked("POST", "/transactions/commit$")) == 1
    for name in names:
        (report,) = reported.proxy.of(name, "commit-report", 1)
        assert values(report)["added-records"] == 1


def test_a_scan_is_reported_without_the_values_of_its_filter(reported: Reported) -> None:
    ours = driver(reported.config)
    for number in range(4):
        ours.commit(*write(ours, number, [number * 10, number * 10 + 1]))
    source = IcebergSourceConfig(reported.config.ref).with_partition_filter("id >= 424242 or id = 10")
    assert read_table(source, None)["id"].to_pylist() == [10]
    (report,) = reported.proxy.of(reported.config.table, "scan-report", 1)
    table = reported.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert report["snapshot-id"] == snapshot.snapshot_id
    assert (report["projected-field-ids"], report["projected-field-names"]) == ([1], ["id"])
    assert report["filter"]["type"] == "or"
    assert "424242" not in json.dumps(report)
    (file,) = [row for row in table.inspect.files().to_pylist() if row["readable_metrics"]["id"]["lower_bound"] == 10]
    assert values(report) == {
        "result-data-files": 1,
        "result-delete-files": 0,
        "skipped-data-files": 3,
        "total-file-size-in-bytes": file["file_size_in_bytes"],
        "total-delete-file-size-in-bytes": 0,
    }


@pytest.mark.parametrize("fault", [answer_with(404), answer_with(500), answer_with(429), lose_request])
def test_reports_that_fail_harm_nothing(reported: Reported, fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    ours = driver(reported.config)
    ours.commit(*write(ours, 0, [0]))
    # An endpoint that works again is told of once more.
    reported.proxy.of(reported.config.table, "commit-report", 1)
    reported.proxy.arm(fault, "POST", "/metrics$", times=None)
    for number in range(1, 3):
        ours.commit(*write(ours, number, [number]))
    assert sorted(reported.table().scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]
    wait_until(lambda: "metrics: a report was not sent" in caplog.text, 20, "the warning")
    assert caplog.text.count("was not sent") == 1


def test_a_catalog_that_refuses_one_gets_no_other(reported: Reported) -> None:
    reported.proxy.arm(answer_with(403), "POST", "/metrics$", times=None)
    ours = driver(reported.config)
    ours.commit(*write(ours, 0, [0]))
    wait_until(lambda: bool(reported.proxy.reports), 20, "the first report")
    for number in range(1, 4):
        ours.commit(*write(ours, number, [number]))
    other = driver(replace(reported.config, table=f"{reported.config.table}_2"))
    other.commit(*write(other, 0, [0]))
    # Another client of the catalog starts anew.
    wait_until(lambda: len(reported.proxy.reports) >= 2, 20, "the report of another client")
    assert [name for name, _, _ in reported.proxy.reports] == [reported.config.table, f"{reported.config.table}_2"]


def test_a_catalog_that_does_not_answer_holds_up_nobody(reported: Reported) -> None:
    let_go, done = threading.Event(), threading.Event()
    reported.proxy.arm(hold_request(let_go, done), "POST", "/metrics$")
    ours = driver(reported.config)
    for number in range(3):
        ours.commit(*write(ours, number, [number]))
    # All epochs are in while the first report still waits.
    assert not done.is_set()
    assert sorted(reported.table().scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]
    let_go.set()
    assert done.wait(20)


def test_no_reports_where_they_are_turned_off(reported: Reported) -> None:
    off = RestCatalog(reported.proxy.uri, properties={"rest-metrics-reporting-enabled": "false"})
    ours = driver(replace(reported.config, catalog=off))
    ours.commit(*write(ours, 0, [1]))
    on = driver(replace(reported.config, table=f"{reported.config.table}_2"))
    on.commit(*write(on, 0, [1]))
    reported.proxy.of(f"{reported.config.table}_2", "commit-report", 1)
    assert reported.config.table not in {name for name, _, _ in reported.proxy.reports}
