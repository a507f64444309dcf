"""The commands that run pipelines and look at them and their jobs: run, show, explain, preview, status, reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Annotated, Any

import typer

from volley.cli.history import served
from volley.cli.output import (
    DEFAULT,
    USAGE,
    AsJson,
    File,
    choose,
    code_of,
    error,
    loaded,
    log_to_stderr,
    named_in_file,
    print_json,
    print_rows,
    reported,
    say,
)
from volley.cli.telemetry import exported
from volley.config.values import Config, ConfiguredPipeline, ConfiguredView
from volley.engine.restart import WaitForMakers
from volley.engine.runs import runs_of
from volley.errors import VolleyError
from volley.iceberg.sink import IcebergSink
from volley.iceberg.views.values import ViewStatus

__all__ = ["explain", "preview", "reset", "run", "show", "status"]


@dataclass(frozen=True)
class PipelineStatus:
    """How far a pipeline has come.

    Args:
        enabled: True if `volley run` runs it.
        state: Of its last run, as of `JobRun`; None before the first.
        last_epoch: The last epoch that is finished; None before the first.
        unfinished: The epoch in which the last run ended; the next run finishes it.
        last_commit: When the sink's table got its last snapshot of this pipeline.
        rows: The number of rows in the table.
        job: The status of its last run when that last wrote its history, as ``/status.json`` has it.
    """

    pipeline: str
    enabled: bool
    state: str | None
    last_epoch: int | None
    unfinished: int | None
    sink: str
    last_commit: datetime | None
    rows: int | None
    checkpoint: str
    job: Mapping[str, Any] | None


def status(file: File = DEFAULT, as_json: AsJson = False) -> None:
    """Show how far each pipeline and view has come: its last epoch, and the last commit to each of its tables.

    Examples:

      volley status -c orders.yaml
    """
    config = loaded(file)
    with reported(config):
        rows = [row for pipeline in config.pipelines.values() for row in _status(config, pipeline)]
        views = [view.view.status() for view in config.views.values()]
    if as_json:
        print_json({"pipelines": [*map(asdict, rows)], "views": [*map(asdict, views)]}, config)
        return
    _print_pipelines(rows, config)
    _print_views(views, config)


def _print_pipelines(rows: Sequence[PipelineStatus], config: Config) -> None:
    columns = [
        "pipeline",
        "enabled",
        "last run",
        "last epoch",
        "unfinished",
        "sink",
        "last commit (UTC)",
        "rows in table",
    ]
    cells = [
        (
            *(row.pipeline, "yes" if row.enabled else "no", row.state, row.last_epoch, row.unfinished, row.sink),
            row.last_commit and f"{row.last_commit:%Y-%m-%d %H:%M:%S}",
            None if row.rows is None else f"{row.rows:,}",
        )
        for row in rows
    ]
    if rows:
        print_rows(columns, cells, config)


def _print_views(views: Sequence[ViewStatus], config: Config) -> None:
    columns = ["view", "refreshes", "last refresh (UTC)", "source", "snapshots behind"]
    cells = [
        (
            *(view.view, view.refreshes, view.refreshed_at and f"{view.refreshed_at:%Y-%m-%d %H:%M:%S}"),
            *(source.table, "not known" if source.snapshots_behind is None else source.snapshots_behind),
        )
        for view in views
        for source in view.sources
    ]
    if cells:
        print_rows(columns, cells, config)


def reset(
    pipeline: Annotated[str, typer.Argument(help="The name of a pipeline.", autocompletion=named_in_file("pipelines"))],
    file: File = DEFAULT,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Delete the checkpoint of a pipeline: its next run reads the sources from the beginning. Sinks keep their rows.

    Examples:

      volley reset orders

      volley reset -c orders.yaml orders --yes
    """
    config = loaded(file)
    choose("pipeline", pipeline, list(config.pipelines))
    if not yes:
        typer.confirm(f"Delete the checkpoint of {pipeline!r}?", abort=True)
    with reported(config):
        config.environment.forget(pipeline)
    say(f"the checkpoint of {pipeline!r} is deleted; the sinks keep their rows", config)


def _status(config: Config, pipeline: ConfiguredPipeline) -> list[PipelineStatus]:
    from volley.spark.log import SparkLog

    folder = config.checkpoint(pipeline.name)
    log, runs = SparkLog(folder), runs_of(folder)
    last = runs[-1] if runs else None
    rows = []
    for name in pipeline.sinks:
        at, count = _last_commit(config, pipeline.name, name)
        rows.append(
            PipelineStatus(
                pipeline.name,
                pipeline.enabled,
                last.state if last else None,
                log.last_finished,
                log.unfinished,
                name,
                at,
                count,
                folder,
                last.status if last else None,
            )
        )
    return rows


def _last_commit(config: Config, job: str, sink: str) -> tuple[datetime | None, int | None]:
    """Return when a job last committed to the table of a sink, and the table's rows; None if it is no table, or new."""
    from volley.iceberg.maintain.refs import listed
    from volley.iceberg.read.entries import rows_in

    value = config.sinks[sink]
    if not isinstance(value, IcebergSink):
        return None, None
    try:
        table = value.config.ref.load()
        head = table.snapshot_by_name(value.config.branch)
        rows = None if head is None else rows_in(table.io, head)
    except VolleyError:
        return None, None
    ours = [snapshot for snapshot in listed(table.metadata) if snapshot.summary.get("volley.job") == job]
    return (ours[-1].committed_at if ours else None), rows


Names = Annotated[
    list[str] | None,
    typer.Option(
        "--pipeline",
        "-p",
        metavar="NAME",
        help="Only this pipeline, or view; repeatable.",
        autocompletion=named_in_file("pipelines", "views"),
    ),
]


def run(
    file: File = DEFAULT,
    pipeline: Names = None,
    once: Annotated[bool, typer.Option("--once", help="Read what the sources have now, then stop.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print plans, paths and columns; run nothing.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over: read the sources from the beginning.")] = False,
    into: Annotated[
        str | None, typer.Option(help="Starting over: append to the rows that sinks have, or replace them.")
    ] = None,
    backfill: Annotated[bool, typer.Option("--backfill", help="Fill new sinks with all rows so far.")] = False,
    ui: Annotated[bool, typer.Option("--ui", help="Serve a page with all pipelines while they run.")] = False,
    ui_port: Annotated[int, typer.Option(min=0, max=65_535, help="The page's port; 0 = a free one.")] = 0,
) -> None:
    """Run the pipelines of a file, in one Spark session, and keep its views up to date.

    Each pipeline is a job with its own checkpoint, restarts and metrics: one that fails is started again while the
    others go on. Ctrl-C or SIGTERM stops all of them after their running epochs; a second one ends the process. With
    --once, views are refreshed after the pipelines have ended.

    Exit codes: 0 all ended or were stopped, 1 a pipeline failed, 69 something can't be reached, 78 the file is wrong,
    130 or 143 after a second signal.

    Examples:

      volley run

      volley run -c orders.yaml --pipeline orders --once

      volley run --ui --ui-port 8080

      volley run --dry-run
    """
    config = loaded(file)
    pipelines, views = _chosen(config, pipeline)
    if into is not None:
        choose("--into", into, ["append", "replace"])
    if dry_run:
        _dry_run(config, pipelines)
        _explain_views(config, views)
        return
    from volley.cli.supervisor import Supervisor

    log_to_stderr(config)
    options: dict[str, Any] = {"once": once, "fresh": fresh, "into": into, "backfill": backfill}
    pipelines = [_waiting(config, configured) for configured in pipelines]
    supervisor = Supervisor(pipelines, {name: value for name, value in options.items() if value}, views)
    with reported(config), exported(), served(supervisor.status, ui_port) if ui or ui_port else nullcontext():
        lines = supervisor.run()
    for line in lines:
        say(line, config)
    for name, failure in supervisor.failures.items():
        error(config.redact(f"{name}: {failure}"))
    if supervisor.failures:
        raise typer.Exit(code_of(list(supervisor.failures.values())))


def show(file: File = DEFAULT) -> None:
    """Print a file as it is understood: anchors merged, references by name, secrets masked.

    Examples:

      volley show -c orders.yaml
    """
    config = loaded(file)
    say(config.text, config)


def explain(file: File = DEFAULT, pipeline: Names = None) -> None:
    """Print the plan of each pipeline and view, and what sources leave out.

    Examples:

      volley explain -c orders.yaml --pipeline orders
    """
    from volley.stream.pipeline import explained

    config = loaded(file)
    pipelines, views = _chosen(config, pipeline)
    for configured in pipelines:
        say(f"{configured.name}\n{explained(configured.pipeline._writes)}\n", config)
    _explain_views(config, views)


def preview(
    pipeline: Annotated[str, typer.Argument(help="The name of a pipeline.", autocompletion=named_in_file("pipelines"))],
    file: File = DEFAULT,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="The most rows.")] = 10,
) -> None:
    """Print the first rows of a pipeline, of each branch: computed in this process, without Spark; no sink gets a row.

    Examples:

      volley preview orders

      volley preview -c orders.yaml orders -n 100
    """
    config = loaded(file)
    choose("pipeline", pipeline, list(config.pipelines))
    with reported(config):
        for branch in config.pipelines[pipeline].branches:
            branch.stream.show(rows)


def _chosen(config: Config, names: list[str] | None) -> tuple[list[ConfiguredPipeline], list[ConfiguredView]]:
    """Return the pipelines and views of these names, or all that are enabled."""
    for name in names or []:
        choose("pipeline", name, [*config.pipelines, *config.views])
    pipelines = [part for part in config.pipelines.values() if (part.name in names if names else part.enabled)]
    views = [part for part in config.views.values() if (part.name in names if names else part.enabled)]
    if not pipelines and not views:
        error(f"{config.file} has no pipeline to run\n  hint: add one under pipelines, or set enabled: true")
        raise typer.Exit(USAGE)
    return pipelines, views


def _waiting(config: Config, pipeline: ConfiguredPipeline) -> ConfiguredPipeline:
    """Return a pipeline that is tried again where it begins before the one that makes its table."""
    if not config.makers(pipeline.sources, pipeline.name):
        return pipeline
    restart = pipeline.restart
    return replace(pipeline, restart=WaitForMakers(restart.policy, restart.limit, restart.backoff))


def _explain_views(config: Config, views: list[ConfiguredView]) -> None:
    for view in views:
        say(f"{view.name}\nview in {view.view.into.table_name}\n{view.view.query}\n", config)


def _dry_run(config: Config, pipelines: list[ConfiguredPipeline]) -> None:
    from volley.stream.pipeline import explained

    for pipeline in pipelines:
        lines = [f"{pipeline.name}", explained(pipeline.pipeline._writes)]
        try:
            for branch in pipeline.branches:
                lines += [f"columns for {', '.join(branch.sinks)}:"]
                lines += [f"  {field.name}: {field.type}" for field in branch.stream.schema]
        except VolleyError as problem:
            lines.append(f"columns are not known: {problem.message}")
        say("\n".join([*lines, ""]), config)
