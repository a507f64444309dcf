"""When events are sent, and that an endpoint that is slow, dead or wrong costs the sender nothing."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.lineage.receiver import Receiver, events_in
from tests.processes import ROOT, plain_environment
from volley.lineage.emitter import Emitter, configured_emitter
from volley.lineage.events import LineageRun, run_event

RUN = LineageRun("orders", datetime(2026, 11, 1, 12, tzinfo=UTC))


def one(state: Any = "START") -> Any:
    """An event to send."""
    return lambda: [run_event(RUN, state, RUN.began)]


def test_nothing_is_sent_unless_the_client_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured_emitter() is None
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    assert configured_emitter() is None
    monkeypatch.setenv("OPENLINEAGE_URL", "http://localhost:9")
    assert configured_emitter() is not None
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert configured_emitter() is None


def test_a_file_of_the_client(tmp_path: Path) -> None:
    """Its transport is used; one without a transport sends nothing, and prints nothing."""
    events = tmp_path / "events.jsonl"
    file = tmp_path / "openlineage.yml"
    file.write_text(f"transport:\n  type: file\n  log_file_path: {events}\n  append: true\n")
    emitter = configured_emitter()
    assert emitter is not None
    emitter.emit(one())
    assert emitter.flush(20)
    assert [event["job"]["name"] for event in events_in(events)] == ["orders"]


def test_a_file_of_the_client_without_a_transport(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "openlineage.yml").write_text("facets:\n  environment_variables: []\n")
    emitter = Emitter()
    emitter.emit(one())
    assert emitter.flush(20)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_events_arrive_in_their_order_and_as_the_specification_says(receiver: Receiver) -> None:
    emitter = configured_emitter()
    assert emitter is not None
    for state in ("START", "RUNNING", "COMPLETE"):
        emitter.emit(one(state))
    events = receiver.events("COMPLETE")
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    assert events[0]["job"]["namespace"] == "default"


def test_a_slow_endpoint_costs_the_sender_nothing(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """What it has no room for is dropped, which is said once."""
    receiver.gate.clear()
    emitter, began = Emitter(most=2), time.monotonic()
    for _ in range(50):
        emitter.emit(one())
    assert not emitter.flush(0.01)
    assert time.monotonic() - began < 2
    receiver.gate.set()
    assert emitter.flush(20)
    assert len(receiver.events()) in (2, 3)
    assert [record.message for record in caplog.records if "dropped" in record.message] == [
        "lineage: events are dropped, as 2 wait for its endpoint"
    ]


def test_an_endpoint_that_refuses_is_told_of_once_and_used_again(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    emitter = configured_emitter()
    assert emitter is not None
    receiver.status = 400
    for _ in range(3):
        emitter.emit(one())
        emitter._waiting.join()
    assert not receiver.events()
    receiver.status = 201
    emitter.emit(one("COMPLETE"))
    assert receiver.events("COMPLETE")
    assert len([record for record in caplog.records if "was not sent" in record.message]) == 1


def test_a_wrong_setting_of_the_client_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", '{"type": "pigeon"}')
    emitter = configured_emitter()
    assert emitter is not None
    emitter.emit(one())
    assert emitter.flush(20)
    assert "lineage: the client of OpenLineage can't start, so nothing is sent" in caplog.text


def test_a_password_in_the_address_of_the_repository_is_masked(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client can tell where the program's source is, from the folder's own repository."""
    monkeypatch.setenv("OPENLINEAGE__FACETS__SOURCE_CODE_LOCATION__DISABLED", "false")
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text('[remote "origin"]\n\turl = https://bot:hunter2hunter2@git.example.com/shop.git\n')
    emitter = Emitter()
    emitter.emit(one())
    (event,) = receiver.events("START")
    assert event["job"]["facets"]["sourceCodeLocation"]["url"] == "https://bot:***@git.example.com/shop.git"
    assert "hunter2" not in json.dumps(event)


PROGRAM = """
from datetime import UTC, datetime
from volley.lineage import emitter
from volley.lineage.events import LineageRun, run_event
run = LineageRun("orders", datetime.now(UTC))
for state in ("START", "COMPLETE"):
    emitter.configured_emitter().emit(lambda state=state: [run_event(run, state, run.began)])
"""


def test_the_last_events_arrive_although_the_process_ends(receiver: Receiver, tmp_path: Path) -> None:
    environment = {**plain_environment(), "OPENLINEAGE_URL": receiver.url}
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, check=True, timeout=100)
    assert [event["eventType"] for event in receiver.events()] == ["START", "COMPLETE"]


def test_a_process_ends_although_its_endpoint_is_silent(receiver: Receiver) -> None:
    receiver.gate.clear()
    program = f"{PROGRAM}emitter._SECONDS_AT_EXIT = 0.2"
    environment = {**plain_environment(), "OPENLINEAGE_URL": receiver.url}
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=environment)
    assert process.wait(timeout=60) == 0


def test_a_parent_that_a_scheduler_names(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, root = "01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-000000000002"
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/daily.load/{parent}")
    monkeypatch.setenv("OPENLINEAGE_ROOT_PARENT_ID", f"airflow/daily/{root}")
    emitter = Emitter()
    emitter.emit(one())
    (event,) = receiver.events("START")
    facet = event["run"]["facets"]["parent"]
    assert (facet["job"]["namespace"], facet["job"]["name"], facet["run"]["runId"]) == ("airflow", "daily.load", parent)
    assert (facet["root"]["job"]["name"], facet["root"]["run"]["runId"]) == ("daily", root)
    assert event["job"]["namespace"] == "shop"


def test_a_user_without_a_home_has_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as a user of any number."""

    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert configured_emitter() is None


def test_a_client_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("OPENLINEAGE_URL", "http://localhost:9/nothing-installed")
    assert [configured_emitter(), configured_emitter()] == [None, None]
    assert caplog.text.count('pip install "volley-stream[lineage]"') == 1
