"""A server that the processes of a test run share is started by the first and stopped by the last of them."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers.process import ServerProcess
from tests.servers.shared import shared


@dataclass(frozen=True)
class Noted:
    """A server that notes in its folder's parent what is done with it."""

    folder: Path
    starts: bool = True

    def start(self) -> None:
        self._note("start")
        if not self.starts:
            raise OSError("no")

    def stop(self) -> None:
        self._note("stop")

    def _note(self, call: str) -> None:
        with (self.folder.parent / "calls").open("a") as calls:
            calls.write(f"{call} ")


def calls(factory: pytest.TempPathFactory) -> str:
    return (factory.getbasetemp() / "calls").read_text()


@pytest.fixture
def factory(tmp_path: Path) -> pytest.TempPathFactory:
    """The temporary folders of a run of its own."""
    return pytest.TempPathFactory(
        given_basetemp=tmp_path / "run",
        retention_count=0,
        retention_policy="all",
        trace=lambda *_: None,
        _ispytest=True,
    )


def test_the_last_that_lets_go_stops_it(factory: pytest.TempPathFactory) -> None:
    first, second = ExitStack(), ExitStack()
    started = first.enter_context(shared(factory, Noted, "noted"))
    assert second.enter_context(shared(factory, Noted, "noted")) == started
    first.close()
    assert calls(factory) == "start "
    second.close()
    assert calls(factory) == "start stop "
    with shared(factory, Noted, "noted") as another:
        assert another != started
    assert calls(factory) == "start stop start stop "


def test_one_that_does_not_start_is_started_by_the_next(factory: pytest.TempPathFactory) -> None:
    with pytest.raises(OSError, match="no"), shared(factory, lambda folder: Noted(folder, starts=False), "noted"):
        pass
    with shared(factory, Noted, "noted"):
        assert calls(factory) == "start stop start "


def test_another_process_can_stop_a_server(tmp_path: Path) -> None:
    here = ServerProcess("sleep", ["sleep", "60"], tmp_path / "log")
    here.start(lambda: True)
    assert here._process is not None
    code = "import pickle, sys; pickle.load(sys.stdin.buffer).stop()"
    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(here), check=True, cwd=os.getcwd())
    assert here._process.wait(10) == -signal.SIGKILL


def test_one_that_leaves_a_server_to_others_is_not_warned(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        server = ServerProcess("sleep", ["sleep", "60"], tmp_path / "log")
        server.start(lambda: True)
        left = server.pid
        del server
        assert [str(warning.message) for warning in caught] == []
    os.kill(left, signal.SIGKILL)
