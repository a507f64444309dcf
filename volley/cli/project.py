"""The commands that begin: init writes a first project, schema the JSON Schema for editors."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from volley.cli.output import FAILED, error, print_json

__all__ = ["init", "schema"]

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
