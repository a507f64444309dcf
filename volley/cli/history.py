"""The commands that look at the runs of jobs, also of dead ones: runs, ui."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from volley.cli.output import (
    DEFAULT,
    USAGE,
    AsJson,
    File,
    choose,
    error,
    loaded,
    named_in_file,
    print_json,
    print_rows,
    reported,
    say,
)
from volley.engine.runs import JobRun, jobs_with_runs, runs_of
from volley.metrics.endpoint import Endpoint, Statuses
from volley.metrics.status import status_json

__all__ = ["runs", "served", "ui"]

_HOST = "127.0.0.1"


def runs(
    pipeline: Annotated[
        str | None,
        typer.Argument(
            help="The name of a pipeline; all of them by default.", autocompletion=named_in_file("pipelines")
        ),
    ] = None,
    file: File = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show the runs of pipelines so far, also of those whose process was killed: when, how far, and why they ended.

    Examples:

      volley runs

      volley runs orders --json
    """
    config = loaded(file)
    if pipeline is not None:
        choose("pipeline", pipeline, list(config.pipelines))
    names = config.pipelines if pipeline is None else [pipeline]
    with reported(config):
        found = [run for name in names for run in runs_of(config.checkpoint(name))]
    if as_json:
        print_json({"runs": [_json(run) for run in found]}, config)
        return
    columns = ["pipeline", "run", "state", "began (UTC)", "seconds", "epochs", "rows", "rejected", "restarts", "error"]
    cells = [
        (
            *(run.job, run.number, run.state, f"{run.began:%Y-%m-%d %H:%M:%S}", f"{run.seconds:,.0f}", run.epochs),
            *(f"{run.rows:,}", f"{run.rejected:,}", run.restarts, run.error),
        )
        for run in found
    ]
    if not cells:
        say("no runs yet: volley run", config)
        return
    print_rows(columns, cells, config)


def ui(
    folder: Annotated[Path, typer.Argument(help="The folder with the checkpoints of all jobs.")] = Path(
        ".volley/checkpoints"
    ),
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The page's port; 0 = a free one.")] = 0,
) -> None:
    """Serve a page with the jobs of a folder and their runs, also ended ones, until Ctrl-C.

    Examples:

      volley ui

      volley ui /data/checkpoints --port 8080
    """
    checkpoints = str(folder.absolute())
    if not jobs_with_runs(checkpoints):
        error(f"{folder} has no history of a job\n  hint: name the folder that checkpoint_dir is")
        raise typer.Exit(USAGE)
    with served(lambda: history_json(checkpoints), port), _ended_by_user():
        threading.Event().wait()


@contextmanager
def served(status: Statuses, port: int) -> Iterator[None]:
    """Serve a page in the block, and say where it is."""
    endpoint = Endpoint(None, _HOST, port)
    endpoint.show(status)
    try:
        print(f"page: {endpoint.page}", flush=True)
        yield
    finally:
        endpoint.close()


def history_json(checkpoints: str) -> str:
    """Return the last status of each job of a folder, and its runs, as ``/status.json`` has them."""
    of_jobs = [found for checkpoint in jobs_with_runs(checkpoints) if (found := runs_of(checkpoint))]
    return status_json(
        [dict(found[-1].status) for found in of_jobs], [_summary(run) for found in of_jobs for run in found]
    )


def _summary(run: JobRun) -> dict[str, Any]:
    shown = ("job", "number", "state", "epochs", "rows", "error")
    return {name: getattr(run, name) for name in shown} | {
        "began": run.began.isoformat(),
        "ended": run.ended and run.ended.isoformat(),
    }


def _json(run: JobRun) -> dict[str, Any]:
    values = asdict(run)
    return {name: values[name] for name in values if name not in ("recent", "status")} | {
        "recent": [asdict(epoch) for epoch in run.recent]
    }


@contextmanager
def _ended_by_user() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        return
