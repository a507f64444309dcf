"""volley top: what it shows of pages and of folders, and what it says of those that have no jobs."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.page.samples import RUNNING, Site
from tests.servers.process import free_ports
from tests.unit.test_runs import recorded
from volley.cli.app import app
from volley.metrics.endpoint import Endpoint
from volley.metrics.status import JobStatus, SourceStatus, status_json


@pytest.fixture
def site() -> Iterator[Site]:
    with closing(Site()) as site:
        yield site


def top(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(app, ["top", "--once", *arguments])


def row_of(shown: Result, name: str) -> list[str]:
    return next(line for line in shown.stdout.splitlines() if line.strip().startswith(name)).split()


def test_it_shows_the_jobs_of_pages(site: Site) -> None:
    site.set(RUNNING, JobStatus("returns", "failed", reason="no such topic", rows=5))
    shown = top(site.endpoint.page)
    assert shown.exit_code == 0
    jobs, sources = shown.stdout.split("source", 1)
    assert row_of(shown, "orders")[:7] == ["orders", "running", "41", "1,234,567", "1,500", "3", "7"]
    assert "3.0 s" in jobs
    assert "returns: no such topic" in shown.stdout
    assert "table shop.late: 12 rows wait" in shown.stdout
    assert sources.splitlines()[2].split() == ["orders", "orders", "1,300,000", "90", "s", "50", "–", "–", "–"]
    assert top(site.endpoint.page.split("/")[2]).stdout == shown.stdout


def test_it_shows_what_a_folder_has_of_jobs_that_run_or_have_died(tmp_path: Path) -> None:
    recorded(tmp_path / "orders", replace(RUNNING, state="finished", rows=321))
    assert row_of(top(str(tmp_path)), "orders")[:4] == ["orders", "finished", "41", "321"]


def test_a_history_of_an_older_version_is_shown(site: Site) -> None:
    site.set_older(RUNNING)
    assert row_of(top(site.endpoint.page), "orders")[:3] == ["orders", "running", "41"]


def test_texts_of_the_data_are_no_markup_and_no_commands_of_the_terminal(site: Site) -> None:
    site.set(replace(RUNNING, job="[red]x[/red]", sources=(SourceStatus("files:[ab]\x1b[2J"),)))
    shown = top(site.endpoint.page).stdout
    assert "[red]x[/red]" in shown
    assert "files:[ab]\ufffd[2J" in shown


def test_a_page_with_a_token_asks_for_it() -> None:
    with closing(Endpoint(None, "127.0.0.1", 0, token="s3cret")) as endpoint:
        endpoint.show(lambda: status_json([RUNNING.to_dict()]))
        refused = top(endpoint.page)
        assert (refused.exit_code, "answers 401: name its token by --token" in refused.stdout) == (69, True)
        assert "1,234,567" in top(endpoint.page, "--token", "s3cret").stdout
        assert "1,234,567" in top(f"{endpoint.page}?token=s3cret").stdout
        assert "s3cret" not in top(f"{endpoint.page}x?token=s3cret", "127.0.0.1:1").stdout


def test_one_that_has_no_jobs_does_not_hide_the_others(site: Site, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    shown = top(f"127.0.0.1:{port}", str(tmp_path), site.endpoint.page)
    assert shown.exit_code == 0
    assert f"http://127.0.0.1:{port}/status.json can't be reached" in shown.stdout
    assert "has no history of a job" in shown.stdout
    assert "1,234,567" in shown.stdout
    assert top(f"127.0.0.1:{port}").exit_code == 69


def test_without_a_terminal_it_says_what_to_do(site: Site) -> None:
    ended = CliRunner().invoke(app, ["top", site.endpoint.page])
    assert (ended.exit_code, "volley top --once" in ended.stderr) == (2, True)


def test_in_a_terminal_it_follows_until_the_user_ends_it(site: Site) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "volley", "top", site.endpoint.page, "--interval", "0.1"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "COLUMNS": "160"}
    ) as process:
        os.close(theirs)
        read(ours, b"1,234,567")
        site.set(replace(RUNNING, rows=7_654_321))
        read(ours, b"7,654,321")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    os.close(ours)


def read(terminal: int, text: bytes) -> None:
    """Read what a terminal shows until a text comes."""
    seen = b""
    while text not in seen:
        assert select.select([terminal], [], [], 60)[0], seen
        seen += os.read(terminal, 1 << 16)
