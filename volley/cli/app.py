"""The command `volley` with its subcommands."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer

from volley.cli import check, jobs, pipelines, project, tables

__all__ = ["app"]

app = typer.Typer(
    name="volley",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Events become Apache Iceberg tables: run, check and look at pipelines that stand in a YAML file.",
)

_COMMANDS: list[Callable[..., None]] = [
    *(project.init, project.schema),
    *(pipelines.run, check.check, pipelines.show, pipelines.explain, pipelines.preview),
    *(tables.snapshots, tables.changes, tables.compact, tables.expire, tables.orphans),
    *(jobs.status, jobs.reset),
]
for _command in _COMMANDS:
    app.command(short_help=re.split(r"[:.,]", _command.__doc__ or "")[0])(_command)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"volley {version('volley-stream')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that stand before a subcommand."""
