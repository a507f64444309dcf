"""What a shell completes: commands, their options, and the names of pipelines, sources and sinks in the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from volley.cli.app import app

FILE = """
sources: {orders: {connector: files, config: {path: in, format: json}}}
sinks: {lake: {connector: console}, log: {connector: console}}
pipelines: {hourly: {source: orders, sink: lake}, daily: {source: orders, sink: log}}
"""


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def completed(line: str) -> list[str]:
    """What Bash offers at the end of a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_VOLLEY_COMPLETE": "complete_bash"}
    offered = CliRunner(env=words).invoke(app, [], prog_name="volley")
    assert offered.stderr == ""
    return offered.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("volley st", ["status"]),
        ("volley run --on", ["--once"]),
        ("volley preview h", ["hourly"]),
        ("volley run -p ", ["hourly", "daily"]),
        ("volley head l", ["lake", "log"]),
        ("volley snapshots --sink la", ["lake"]),
    ],
)
def test_what_a_shell_is_offered(line: str, offered: list[str], tmp_path: Path) -> None:
    (tmp_path / "volley.yaml").write_text(FILE)
    assert completed(line) == offered


def test_a_file_that_is_wrong_offers_nothing_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "volley.yaml").write_text("sources: [")
    assert completed("volley preview ") == []


def test_the_file_that_the_line_names_is_asked(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(FILE.replace("hourly", "weekly"))
    assert completed("volley preview -c other.yaml w") == ["weekly"]
    assert completed("volley preview ") == []
