"""The commands of a project, each as a process: from an empty folder to a table that others read."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.commands.processes import Ended, start, volley
from tests.processes import ROOT
from tests.tiers import nightly
from tests.waiting import wait_until


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    """A table's rows, read by plain pyiceberg."""
    catalog = SqlCatalog("volley", uri=f"sqlite:///{folder}/lake/catalog.db")
    rows: list[dict[str, Any]] = catalog.load_table(table).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: int(row["id"]))


@pytest.mark.nightly
def test_from_an_empty_folder_to_a_table(tmp_path: Path) -> None:
    """One run of Spark: before it and after it, all that a user looks at."""
    made = volley(tmp_path, "init", "my shop")
    assert made.code == 0
    assert "cd 'my shop'" in made.out
    tmp_path /= "my shop"
    again = volley(tmp_path, "init")
    assert (again.code, "volley.yaml is there already" in again.err) == (1, True)

    before = sorted(path.name for path in tmp_path.iterdir())
    checked = volley(tmp_path, "check")
    assert checked.code == 0, checked
    for part in ("source orders", "has rows", "5 columns fit", "written, read and deleted", "it will be created"):
        assert part in checked.out
    assert sorted(path.name for path in tmp_path.iterdir()) == before

    looked = volley(tmp_path, "preview", "orders")
    assert (looked.code, "pot" in looked.out, "25.0" in looked.out) == (0, False, True)
    planned = volley(tmp_path, "run", "--dry-run")
    assert "read FileSource" in planned.out
    assert "  total: double" in planned.out
    assert "write IcebergSink" in volley(tmp_path, "explain").out
    assert "filter: amount > 0" in volley(tmp_path, "show").out
    assert not (tmp_path / "lake").exists()

    ran = volley(tmp_path, "run")
    assert ran.code == 0, ran
    assert "orders: finished · epoch 0 · 3 rows" in ran.out
    assert [(row["id"], row["total"]) for row in rows_of(tmp_path, "shop.orders")] == [(1, 7.5), (2, 8.0), (4, 25.0)]

    listed = json.loads(volley(tmp_path, "snapshots", "--json").out)
    assert [snapshot["operation"] for snapshot in listed] == ["append"]
    assert "append" in volley(tmp_path, "snapshots").out
    assert volley(tmp_path, "changes", "--key", "id").out.count("insert") == 3
    (state,) = json.loads(volley(tmp_path, "status", "--json").out)["pipelines"]
    assert (state["pipeline"], state["last_epoch"], state["rows"]) == ("orders", 0, 3)
    assert (state["state"], state["job"]["rows"], state["job"]["sinks"][0]["rows"]) == ("finished", 3, 3)
    assert "orders" in volley(tmp_path, "status").out
    (run,) = json.loads(volley(tmp_path, "runs", "--json").out)["runs"]
    assert (run["job"], run["state"], run["rows"], run["number"]) == ("orders", "finished", 3, 1)
    assert "finished" in volley(tmp_path, "runs", "orders").out
    first = [json.loads(line) for line in volley(tmp_path, "head", "shop.orders", "--json").out.splitlines()]
    assert sorted((row["id"], row["total"]) for row in first) == [(1, 7.5), (2, 8.0), (4, 25.0)]
    assert "healthy: nothing to mend" in volley(tmp_path, "health").out
    assert "data files" in volley(tmp_path, "compact", "--dry-run").out
    assert "0 snapshots and 0 files" in volley(tmp_path, "expire", "--older-than", "7d", "--dry-run").out
    assert "0 files (0 bytes) belong to no snapshot" in volley(tmp_path, "orphans").out
    checked = volley(tmp_path, "check", "--json")
    found = {(each["part"], each["probe"]): each for each in json.loads(checked.out)["checks"]}
    assert found["sink lake", "table"]["detail"] == "shop.orders, 3 rows"
    assert {each["status"] for each in found.values()} == {"ok"}

    assert volley(tmp_path, "reset", "orders", "--yes").code == 0
    assert json.loads(volley(tmp_path, "status", "--json").out)["pipelines"][0]["last_epoch"] is None
    assert volley(tmp_path, "reset", "orders", "--yes").code == 1


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    volley(folder, "init")
    return folder


class TestExitCodes:
    def test_wrong_arguments(self, project: Path) -> None:
        wrong = ("run --pipeline ordres", "run --into all", "preview ordres", "check --sink laek", "rnu")
        for arguments in map(str.split, wrong):
            ended = volley(project, *arguments)
            assert ended.code == 2, ended
        assert "did you mean 'orders'" in volley(project, "preview", "ordres").err
        assert volley(project, "--version").out.startswith("volley ")

    def test_a_wrong_file(self, project: Path) -> None:
        (project / "wrong.yaml").write_text("sinks: {lake: {connector: icebreg}}\n")
        for command in ("run", "check", "snapshots"):
            ended = volley(project, command, "-c", "wrong.yaml")
            assert ended.code == 78
            assert "wrong.yaml:1:27: there is no connector 'icebreg' among the sinks" in ended.err
        told = json.loads(volley(project, "check", "-c", "wrong.yaml", "--json").out)
        (mistake,) = told["mistakes"]
        assert (told["ok"], mistake["line"], mistake["column"]) == (False, 1, 27)
        assert volley(project, "check", "-c", "none.yaml").code == 78

    def test_a_folder_that_can_not_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for folder in ("file", "file/below"):
            ended = volley(tmp_path, "init", folder)
            assert (ended.code, ended.err.startswith(f"{folder}/volley.yaml can't be written: ")) == (1, True), ended

    @pytest.mark.nightly
    def test_what_can_not_be_reached(self, project: Path) -> None:
        ended = volley(project, "snapshots")
        assert (ended.code, "not found" in ended.err) == (1, True)
        text = (project / "volley.yaml").read_text().replace("local: {path: lake}", LOST)
        (project / "lost.yaml").write_text(text)
        ended = volley(project, "snapshots", "-c", "lost.yaml", VOLLEY_TEST_CREDENTIAL="id:hunter2hunter2")
        assert (ended.code, "does not answer" in ended.err, "hunter2" in ended.err) == (69, True, False)


LOST = """catalog: {type: rest, rest: {uri: "http://127.0.0.1:1", credential: "${VOLLEY_TEST_CREDENTIAL}"}}
      s3: {bucket: lake}"""

SEVERAL = """
sources:
  ticks: {connector: rate, config: {rows_per_second: 50}}
  again: {connector: rate, config: {rows_per_second: 51}}
  late: {connector: files, config: {path: late, format: json, schema: id long, bounded: false}}
sinks:
  first: {connector: iceberg, config: {namespace: db, table: first, local: {path: lake}, flush_interval: 1s}}
  second: {connector: files, config: {path: second, format: json}}
  third: {connector: iceberg, config: {namespace: db, table: third, local: {path: lake}, flush_interval: 1s}}
pipelines:
  first: {source: ticks, sink: first, steps: [{select: [{id: value}]}]}
  second: {source: again, sink: second, metrics_port: 0}
  third: {source: late, sink: third, backoff: 500ms, restart: always}
runtime: {checkpoint_interval: 1s}
"""


@pytest.mark.nightly
def test_several_pipelines_run_in_one_session_and_one_that_fails_is_started_again(tmp_path: Path) -> None:
    (tmp_path / "volley.yaml").write_text(SEVERAL)
    log = tmp_path / "log"
    with log.open("w") as stderr:
        process = start(tmp_path, "run", stderr=stderr)

        def logged(text: str) -> bool:
            assert process.poll() is None, log.read_text()
            return text in log.read_text()

        try:
            wait_until(lambda: logged("third: failed, restart"), 200, "a restart")
            (tmp_path / "late").mkdir()
            (tmp_path / "late" / "1.json").write_text('{"id": 1}\n{"id": 2}\n')
            wait_until(lambda: logged("is in table db.third"), 120, "the pipeline whose folder is there now")
            wait_until(lambda: logged("is in table db.first"), 60, "the first pipeline")
            wait_until(lambda: any((tmp_path / "second").glob("*.json")), 60, "the second pipeline")
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 0, log.read_text()
    for name in ("first", "second", "third"):
        assert f"{name}: stopped" in out
    assert [row["id"] for row in rows_of(tmp_path, "db.third")] == [1, 2]
    ids = [row["id"] for row in rows_of(tmp_path, "db.first")]
    assert ids == list(range(len(ids)))


STUCK = """
sources: {orders: {connector: files, config: {path: orders, format: json, schema: id long}}}
sinks: {lake: {connector: iceberg, config: {catalog: {type: rest, rest: {uri: "ADDRESS"}}, s3: {bucket: lake},
                                            namespace: db, table: orders}}}
pipelines: {orders: {source: orders, sink: lake}}
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), nightly(signal.SIGTERM, 143)])
def test_a_second_signal_ends_the_process_at_once(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """The job waits for a catalog that never answers."""
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "1.json").write_text('{"id": 1}\n')
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as silent, log.open("w") as stderr:
        silent.settimeout(120)
        text = STUCK.replace("ADDRESS", f"http://127.0.0.1:{silent.getsockname()[1]}")
        (tmp_path / "volley.yaml").write_text(text)
        process = start(tmp_path, "run", stderr=stderr)
        try:
            with silent.accept()[0]:
                process.send_signal(number)
                wait_until(lambda: "a second signal ends the process" in log.read_text(), 60, "the first signal")
                assert process.poll() is None
                process.send_signal(number)
                assert process.wait(60) == code, log.read_text()
        finally:
            process.kill()


@pytest.mark.nightly
def test_a_view_is_followed_until_a_signal_comes(tmp_path: Path) -> None:
    """It needs no Spark."""
    (tmp_path / "volley.yaml").write_text(SPLIT.replace("steps: [{agg", "interval: 100ms\n    steps: [{agg"))
    (tmp_path / "lake").mkdir()
    catalog = SqlCatalog("volley", uri=f"sqlite:///{tmp_path}/lake/catalog.db", warehouse=str(tmp_path / "lake"))
    catalog.create_namespace("db")
    rows = pa.table({"id": [1], "item": ["tea"], "cents": [5]})
    paid = catalog.create_table("db.paid", rows.schema)
    paid.append(rows)
    log = tmp_path / "log"
    with log.open("w") as stderr:
        process = start(tmp_path, "run", "-p", "revenue", "--ui", stderr=stderr)
        try:
            assert process.stdout is not None
            page = process.stdout.readline().removeprefix("page: ").strip()
            wait_until(lambda: "revenue: full refresh" in log.read_text(), 60, "the first refresh")
            paid.append(rows)
            wait_until(lambda: log.read_text().count(" refresh (") == 2, 60, "the second refresh")
            with urlopen(f"{page}status.json", timeout=60) as answer:
                (view,) = json.load(answer)["views"]
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, log.read_text()
    assert out.startswith("revenue: ")
    assert (view["view"], view["state"]) == ("revenue", "running")
    assert [refresh["rows_added"] for refresh in view["refreshes"]] == [1, 1]
    assert catalog.load_table("db.revenue").scan(selected_fields=("cents",)).to_arrow()["cents"].to_pylist() == [10]


SPLIT = """
sources:
  orders: {connector: files, config: {path: orders, format: json, schema: "id long, item string, cents long"}}
  paid: {connector: iceberg, config: {namespace: db, table: paid, local: {path: lake}}}
sinks:
  paid: {connector: iceberg, config: {namespace: db, table: paid, local: {path: lake}}}
  free: {connector: iceberg, config: {namespace: db, table: free, local: {path: lake}}}
  revenue: {connector: iceberg, config: {namespace: db, table: revenue, local: {path: lake}}}
pipelines:
  orders: {source: orders, split: {if: cents > 0, then: {sink: paid}, else: {steps: [{drop: cents}], sink: free}}}
views:
  revenue:
    source: paid
    sink: revenue
    steps: [{aggregate: {keys: item, aggregate: {id: count, cents: {sum: cents}}}}]
"""


@pytest.mark.nightly
def test_branches_and_a_view(tmp_path: Path) -> None:
    (tmp_path / "volley.yaml").write_text(SPLIT)
    (tmp_path / "orders").mkdir()
    orders = [{"id": 1, "item": "tea", "cents": 5}, {"id": 2, "item": "tea", "cents": 7}, {"id": 3, "item": "cup"}]
    (tmp_path / "orders" / "1.json").write_text("".join(json.dumps(order) + "\n" for order in orders))
    ended = volley(tmp_path, "run", "--once")
    assert ended.code == 0, ended
    assert "revenue: full refresh (it is the first one): 2 rows read, 1 written" in ended.out
    assert [row["id"] for row in rows_of(tmp_path, "db.paid")] == [1, 2]
    assert rows_of(tmp_path, "db.free") == [{"id": 3, "item": "cup"}]
    (row,) = rows_of(tmp_path, "db.revenue")
    assert (row["item"], row["id"], row["cents"]) == ("tea", 2, 12)
    (view,) = json.loads(volley(tmp_path, "status", "--json").out)["views"]
    assert (view["refreshes"], view["sources"][0]["snapshots_behind"]) == (1, 0)
    checked = volley(tmp_path, "check", "--sink", "revenue", "--commit", "--json")
    found = {(each["part"], each["probe"]): each for each in json.loads(checked.out)["checks"]}
    assert checked.code == 0, checked
    assert found["view revenue", "query"]["detail"].startswith("revenue: none refresh")
    assert found["sink revenue", "commit"]["detail"].endswith("committed and removed")
    assert "source orders" not in {part for part, _ in found}


@pytest.mark.nightly
def test_a_table_that_a_pipeline_of_the_file_makes_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "volley.yaml").write_text(SPLIT)
    (tmp_path / "lost.yaml").write_text(
        SPLIT.replace("orders: {source: orders,", "orders: {enabled: false, source: orders,")
    )
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "1.json").write_text('{"id": 1, "item": "tea", "cents": 5}')
    for arguments, code, status in (
        (("check",), 0, "ok"),
        (("check", "--sink", "revenue"), 0, "ok"),
        (("check", "-c", "lost.yaml"), 69, "failed"),
    ):
        ended = volley(tmp_path, *arguments, "--json")
        found = {(each["part"], each["probe"]): each for each in json.loads(ended.out)["checks"]}
        looks = [found["source paid", "source"], found["view revenue", "query"]]
        assert (ended.code, {look["status"] for look in looks}) == (code, {status}), ended
        assert all(("pipeline orders will create it" in look["detail"]) is (code == 0) for look in looks)


@pytest.mark.nightly
def test_the_example_runs(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    orders = [{"id": 1, "item": "TEA", "price": 2.5, "amount": 3}, {"id": 2, "item": "cup", "price": 8, "amount": 0}]
    (tmp_path / "orders" / "1.json").write_text("".join(json.dumps(order) + "\n" for order in orders) + '{"id": "x"}\n')
    ended: Ended = volley(tmp_path, "run", "-c", str(ROOT / "examples" / "orders.yaml"))
    assert ended.code == 0, ended
    assert [(row["item"], row["total"]) for row in rows_of(tmp_path, "shop.orders")] == [("tea", 7.5)]
    assert any((tmp_path / "lake" / "unreadable").glob("*.json"))
