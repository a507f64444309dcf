"""The command `volley` with its subcommands; init and schema begin a project."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from volley.cli import check, head, history, pipelines, replay, statements, tables, top
from volley.cli.output import FAILED, error, print_json

__all__ = ["app"]

_CONFIG = """\
# yaml-language-server: $schema=volley.schema.json
version: "1.0"

sources:
  orders:
    connector: files
    config:
      path: orders/*.json
      schema: id long, item string, price double, amount int, at timestamp
      bounded: true            # false: keep watching for new files

sinks:
  lake:
    connector: iceberg
    config:
      namespace: shop
      table: orders
      local: {path: lake}      # or catalog: {type: rest, rest: {uri: "${CATALOG}"}} and s3: {bucket: ...}
      partitioning: ["day(at)"]

pipelines:
  orders:
    source: orders
    sink: lake
    filter: amount > 0
    steps:
      - with_columns: {total: price * amount}
      - drop: [price]

runtime:
  checkpoint_dir: .volley/checkpoints
"""
_ORDERS = [
    {"id": 1, "item": "tea", "price": 2.5, "amount": 3, "at": "2026-11-01T09:30:00Z"},
    {"id": 2, "item": "cup", "price": 8.0, "amount": 1, "at": "2026-11-01T10:15:00Z"},
    {"id": 3, "item": "pot", "price": 24.0, "amount": 0, "at": "2026-11-02T08:00:00Z"},
    {"id": 4, "item": "tea", "price": 2.5, "amount": 10, "at": "2026-11-02T11:45:00Z"},
]
_NEXT = """
volley check      # is everything there?
volley preview orders
volley run
volley snapshots
"""


def init(folder: Annotated[Path, typer.Argument(help="The folder of the project.")] = Path()) -> None:
    """Write a first project: a volley.yaml, some orders as JSON, and the JSON Schema for your editor.

    Examples:

      volley init shop && cd shop && volley run
    """
    from volley.config.json_schema import json_schema

    files = {
        "volley.yaml": _CONFIG,
        "orders/1.json": "".join(json.dumps(order) + "\n" for order in _ORDERS),
        "volley.schema.json": json.dumps(json_schema(), indent=2),
        ".gitignore": ".volley/\nlake/\n",
    }
    if there := [name for name in files if name != ".gitignore" and (folder / name).exists()]:
        error(f"{folder / there[0]} is there already\n  hint: name another folder: volley init FOLDER")
        raise typer.Exit(FAILED)
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                continue
            path.write_text(text, encoding="utf-8")
        except OSError as problem:
            error(f"{path} can't be written: {problem.strerror}\n  hint: name another folder: volley init FOLDER")
            raise typer.Exit(FAILED) from None
        print(f"wrote {path}")
    print(_NEXT if folder == Path() else f"\ncd {shlex.quote(str(folder))}{_NEXT}", end="")


def schema() -> None:
    """Print the JSON Schema of the file, for completion and checks in editors.

    Examples:

      volley schema > volley.schema.json
    """
    from volley.config.json_schema import json_schema

    print_json(json_schema())


app = typer.Typer(
    name="volley",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Events become Apache Iceberg tables: run, check and look at pipelines that stand in a YAML file.",
)

_COMMANDS: list[Callable[..., None]] = [
    *(init, schema),
    *(pipelines.run, check.check, pipelines.show, pipelines.explain, pipelines.preview, head.head),
    statements.sql,
    replay.replay,
    *(tables.snapshots, tables.health, tables.changes, tables.compact, tables.expire, tables.orphans),
    tables.erase,
    *(pipelines.status, history.runs, history.ui, top.top, pipelines.reset),
]
for _command in _COMMANDS:
    app.command(short_help=re.split(r"[:.,]", _command.__doc__ or "")[0])(_command)


def _version(is_asked: bool) -> None:
    if is_asked:
        print(f"volley {version('volley-stream')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that stand before a subcommand."""
