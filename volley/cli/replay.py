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
    letters = "1 dead letter" if done.replayed == 1 else f"{done.replayed:,} dead letters"
    is_or_are = "is" if done.replayed == 1 else "are"
    rows = "1 row" if done.rows == 1 else f"{done.rows:,} rows"
    failed = f"; failed again: {done.rejected:,}" if done.rejected else ""
    say(f"{letters} of {pipeline!r} {is_or_are} replayed: {rows}{failed}", config)
