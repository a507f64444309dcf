"""The commands that run pipelines and look at them: run, show, explain, preview."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from volley.cli.output import DEFAULT, USAGE, File, choose, code_of, error, loaded, log_to_stderr, reported, say
from volley.config.values import Config, ConfiguredPipeline, ConfiguredView
from volley.engine.restart import WaitForMakers
from volley.errors import VolleyError

__all__ = ["explain", "preview", "run", "show"]

Names = Annotated[
    list[str] | None,
    typer.Option("--pipeline", "-p", metavar="NAME", help="Only this pipeline, or view; repeatable."),
]


def run(
    file: File = DEFAULT,
    pipeline: Names = None,
    once: Annotated[bool, typer.Option("--once", help="Read what the sources have now, then stop.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print plans, paths and columns; run nothing.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over: read the sources from the beginning.")] = False,
    into: Annotated[
        str | None, typer.Option(help="With --fresh: append to the rows that sinks have, or replace them.")
    ] = None,
    backfill: Annotated[bool, typer.Option("--backfill", help="Fill new sinks with all rows so far.")] = False,
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

      volley run --dry-run
    """
    config = loaded(file)
    pipelines, views = _chosen(config, pipeline)
    if dry_run:
        _dry_run(config, pipelines)
        _explain_views(config, views)
        return
    from volley.cli.supervisor import Supervisor

    log_to_stderr(config)
    given: dict[str, Any] = {"once": once, "fresh": fresh, "into": into, "backfill": backfill}
    pipelines = [_waiting(config, each) for each in pipelines]
    supervisor = Supervisor(pipelines, {name: value for name, value in given.items() if value}, views)
    for line in supervisor.run():
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
    from volley.stream.explain import explained

    config = loaded(file)
    pipelines, views = _chosen(config, pipeline)
    for each in pipelines:
        say(f"{each.name}\n{explained(each.pipeline._writes)}\n", config)
    _explain_views(config, views)


def preview(
    pipeline: Annotated[str, typer.Argument(help="The name of a pipeline.")],
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
    pipelines = [each for each in config.pipelines.values() if (each.name in names if names else each.enabled)]
    views = [each for each in config.views.values() if (each.name in names if names else each.enabled)]
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
    for each in views:
        say(f"{each.name}\nview in {each.view.into.table_name}\n{each.view.query}\n", config)


def _dry_run(config: Config, pipelines: list[ConfiguredPipeline]) -> None:
    from volley.stream.explain import explained

    for each in pipelines:
        lines = [f"{each.name}", explained(each.pipeline._writes)]
        try:
            for branch in each.branches:
                lines += [f"columns for {', '.join(branch.sinks)}:"]
                lines += [f"  {field.name}: {field.type}" for field in branch.stream.schema]
        except VolleyError as problem:
            lines.append(f"columns are not known: {problem.message}")
        say("\n".join([*lines, ""]), config)
