"""The command that shows jobs in the terminal while they run: top."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import typer
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from volley.cli.history import history_json
from volley.cli.output import UNREACHABLE, USAGE, error
from volley.engine.runs import jobs_with_runs
from volley.errors import VolleyError

__all__ = ["top"]

_SECONDS = 5.0
_COLORS = {"running": "green", "finished": "green", "failed": "red", "died": "red", "restarting": "yellow"}
_Job = Mapping[str, Any]
"""The status of a job, as ``/status.json`` has it."""


class _NoJobs(Exception):
    """Says why a target has none."""


def top(
    targets: Annotated[
        list[str] | None,
        typer.Argument(help="Addresses of pages, as job.ui has them, or folders with the checkpoints of jobs."),
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="VOLLEY_TOKEN", help="What the pages ask for: metrics_token.")
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, help="The seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print what they do now, and end.")] = False,
) -> None:
    """Show what jobs do, in the terminal, until Ctrl-C: state, rows a second, how far behind, bad rows, last error.

    A page tells what its jobs do now; a folder what they last wrote to their history, at most ten seconds ago.

    Examples:

      volley top

      volley top 127.0.0.1:8080 other-host:8080

      volley top /data/checkpoints --once
    """
    asked = targets or [".volley/checkpoints"]
    console = Console()
    if once:
        jobs, faults = _look(asked, token)
        console.print(_shown(jobs, faults))
        if faults and not jobs:
            raise typer.Exit(UNREACHABLE)
        return
    if not console.is_terminal:
        error("top needs a terminal\n  hint: volley top --once prints what the jobs do now")
        raise typer.Exit(USAGE)
    with Live(console=console, screen=True, auto_refresh=False) as live, suppress(KeyboardInterrupt):
        while True:
            live.update(_shown(*_look(asked, token)), refresh=True)
            time.sleep(interval)


def _look(targets: Sequence[str], token: str | None) -> tuple[list[_Job], list[str]]:
    """Return the jobs of all targets, and why some have none."""
    jobs: list[_Job] = []
    faults: list[str] = []
    for target in targets:
        try:
            jobs += _jobs_of(target, token)
        except _NoJobs as fault:
            faults.append(str(fault))
    return jobs, faults


def _jobs_of(target: str, token: str | None) -> list[_Job]:
    if (address := _address(target)) is not None:
        text = _asked(address, token)
    else:
        folder = target if "://" in target else str(Path(target).absolute())
        try:
            if not jobs_with_runs(folder):
                raise _NoJobs(f"{target} has no history of a job: name the folder that checkpoint_dir is, or a page")
            text = history_json(folder)
        except (VolleyError, OSError) as problem:
            raise _NoJobs(f"{target}: {problem}") from None
    jobs: list[_Job] = json.loads(text)["jobs"]
    return jobs


def _address(target: str) -> str | None:
    """Return the address of a page's status; None = the target is a folder."""
    if not target.startswith(("http://", "https://")):
        host, colon, port = target.rpartition(":")
        if not (host and colon and port.isdecimal()):
            return None
        target = f"http://{target}"
    parts = urlsplit(target)
    return f"{parts.scheme}://{parts.netloc}/status.json{'?' * bool(parts.query)}{parts.query}"


def _asked(address: str, token: str | None) -> str:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    place = address.partition("?")[0]
    try:
        with urlopen(Request(address, headers=headers), timeout=_SECONDS) as answer:
            text: str = answer.read().decode()
            return text
    except HTTPError as problem:
        hint = ": name its token by --token" if problem.code == 401 else ": is a page served there (ui_port)?"
        raise _NoJobs(f"{place} answers {problem.code}{hint}") from None
    except (URLError, OSError, ValueError) as problem:
        raise _NoJobs(f"{place} can't be reached: {getattr(problem, 'reason', problem)}") from None


def _shown(jobs: Sequence[_Job], faults: Sequence[str]) -> RenderableType:
    sources = [(job, source) for job in jobs for source in job["sources"]]
    return Group(
        *([_jobs(jobs)] if jobs else []),
        *(_text(f"{job['job']}: {job['reason']}", "red") for job in jobs if job["reason"]),
        *(_text(f"{job['job']}: {note}", "yellow") for job in jobs for note in job["notes"]),
        *(_text(fault, "yellow") for fault in faults),
        *([_sources(sources)] if sources else []),
    )


def _jobs(jobs: Iterable[_Job]) -> Table:
    table = _table("job", "state", "epoch", "rows", "rows/s", "bad", "late", "restarts", "last commit", "for")
    for job in jobs:
        ages = [sink["seconds_since_last_commit"] for sink in job["sinks"]]
        last = min((age for age in ages if age is not None), default=None)
        table.add_row(
            *(_text(job["job"]), _text(job["state"], _COLORS.get(job["state"], "")), _number(job["epoch"])),
            *(_number(job["rows"]), _number(job["rows_per_second"]), _alarm(job["rejected"]), _alarm(job["late"])),
            *(_alarm(job["restarts"]), _duration(last), _duration(job["seconds"])),
        )
    return table


def _sources(sources: Iterable[tuple[_Job, Mapping[str, Any]]]) -> Table:
    table = _table("source", "job", "rows read", "behind", "rows", "files", "bytes", "watermark (UTC)")
    for job, source in sources:
        lag = source["lag"] or {}
        table.add_row(
            *(_text(source["name"]), _text(job["job"]), _number(source["rows"]), _duration(lag.get("seconds"))),
            *(_number(lag.get(name)) for name in ("rows", "files", "bytes")),
            _text((source.get("watermark") or "–")[:19].replace("T", " ")),
        )
    return table


def _table(first: str, *heads: str) -> Table:
    columns = [Column(first, overflow="fold"), *(Column(head, justify="right") for head in heads)]
    return Table(*columns, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)


def _text(text: str, style: str = "") -> Text:
    """Return a text that comes with the data: it is no markup, and does nothing to the terminal."""
    return Text("".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text), style)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _alarm(value: int) -> Text:
    return Text(_number(value), style="red" if value else "")


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
