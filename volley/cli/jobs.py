"""The commands for jobs and their checkpoints: status, reset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated

import typer

from volley.cli.output import DEFAULT, AsJson, File, choose, loaded, print_json, print_rows, reported, say
from volley.config.values import Config, ConfiguredPipeline
from volley.errors import VolleyError
from volley.iceberg.sink import IcebergSink
from volley.iceberg.views.values import ViewStatus

__all__ = ["reset", "status"]


@dataclass(frozen=True)
class Status:
    """How far a pipeline has come.

    Args:
        pipeline: Its name.
        enabled: True if `volley run` runs it.
        last_epoch: The last epoch that is finished; None before the first.
        unfinished: The epoch in which the last run ended; the next run finishes it.
        sink: The name of a sink.
        last_commit: When the sink's table got its last snapshot of this pipeline.
        rows: The number of rows in the table.
        checkpoint: The checkpoint's folder.
    """

    pipeline: str
    enabled: bool
    last_epoch: int | None
    unfinished: int | None
    sink: str
    last_commit: datetime | None
    rows: int | None
    checkpoint: str


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


def _print_pipelines(rows: Sequence[Status], config: Config) -> None:
    columns = ["pipeline", "enabled", "last epoch", "unfinished", "sink", "last commit (UTC)", "rows in table"]
    cells = [
        (
            *(row.pipeline, "yes" if row.enabled else "no", row.last_epoch, row.unfinished, row.sink),
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
    pipeline: Annotated[str, typer.Argument(help="The name of a pipeline.")],
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


def _status(config: Config, pipeline: ConfiguredPipeline) -> list[Status]:
    from volley.spark.log import SparkLog

    folder = config.checkpoint(pipeline.name)
    log = SparkLog(folder)
    rows = []
    for name in pipeline.sinks:
        at, count = _last_commit(config, pipeline.name, name)
        rows.append(Status(pipeline.name, pipeline.enabled, log.last_finished, log.unfinished, name, at, count, folder))
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
    ours = [each for each in listed(table.metadata) if each.summary.get("volley.job") == job]
    return (ours[-1].committed_at if ours else None), rows
