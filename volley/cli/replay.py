"""The command that reads dead letters again: replay."""

from __future__ import annotations

from typing import Annotated

import typer

from volley.cli.output import DEFAULT, File, choose, loaded, log_to_stderr, named_in_file, reported, say

__all__ = ["replay"]


def replay(
    pipeline: Annotated[str, typer.Argument(help="The name of a pipeline.", autocompletion=named_in_file("pipelines"))],
    file: File = DEFAULT,
) -> None:
    """Read the dead letters of a pipeline again, through its steps as the file has them now.

    Mend the pipeline, or its schema, first. Each row gets once to those of its sinks that lack it, and its letter is
    marked in the column `replayed`; one that fails again stays, with its new reason. A replay that was killed is
    finished by the next one. The pipeline may run meanwhile.

    Examples:

      volley replay orders

      volley replay -c orders.yaml orders
    """
    config = loaded(file)
    choose("pipeline", pipeline, list(config.pipelines))
    log_to_stderr(config)
    with reported(config):
        done = config.pipelines[pipeline].pipeline.replay(pipeline).progress
    failed = f"; {done.rejected:,} have failed again" if done.rejected else ""
    say(f"{done.replayed:,} dead letters of {pipeline!r} are replayed: {done.rows:,} rows{failed}", config)
