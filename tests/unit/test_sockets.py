"""Sockets of a JVM that was killed are deleted by the next start, those of one that lives never."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from volley.spark import sockets

HOLDER = """
import os, subprocess, sys
from volley.spark.sockets import socket_folder
folder, lock = socket_folder()
(folder / "a.sock").touch()
has_child = sys.argv[1] == "child"
if has_child:
    subprocess.Popen([sys.executable, "-c", "input()"], stdin=0, pass_fds=(lock,))
print(folder, flush=True)
os._exit(0) if has_child else input()
"""


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(sockets, "_own", None)
    return tmp_path / f"volley-{os.geteuid()}"


@pytest.mark.parametrize("whose", ["child", "own"])
def test_a_folder_lives_as_long_as_the_process_or_its_jvm(
    home: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    command = [sys.executable, "-c", HOLDER, whose]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        other = Path(holder.stdout.readline().strip())
        if whose == "child":
            holder.wait()
        own, _ = sockets.socket_folder()
        assert sockets.socket_folder()[0] == own
        assert {path.name for path in home.iterdir()} == {own.name, other.name}
        assert (other / "a.sock").exists()
    lock = os.open(other, os.O_RDONLY)
    # Its child ends a moment after its standard input.
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.close(lock)
    monkeypatch.setattr(sockets, "_own", None)
    again, _ = sockets.socket_folder()
    assert not other.exists()
    assert own.exists()
    assert again != own


def test_sockets_that_older_versions_left(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(mode=0o700)
    names = [f".0000000{number}-0000-0000-0000-000000000000.sock" for number in range(3)]
    monkeypatch.chdir(home)
    with closing(socket.socket(socket.AF_UNIX)) as living:
        living.bind(names[0])
        for name in names[1:]:
            with closing(socket.socket(socket.AF_UNIX)) as dead:
                dead.bind(name)
        for name in names[:2]:
            os.utime(name, (0, 0))
        (home / "spark-1.log").touch()
        sockets.socket_folder()
        assert {path.name for path in home.iterdir() if not path.is_dir()} == {names[0], names[2], "spark-1.log"}
