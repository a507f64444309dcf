"""What commands print, and how they end: exit codes, errors, secrets masked."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from volley.config.load import load_config
from volley.config.values import Config
from volley.documents.mistakes import nearest
from volley.errors import (
    CatalogAuthError,
    CatalogUnreachableError,
    ConfigError,
    ExpressionError,
    PlanError,
    SchemaChangedError,
    SchemaMismatchError,
    SnapshotExpiredError,
    SnapshotNotFoundError,
    SnapshotRolledBackError,
    SourceError,
    StorageError,
    TableReplacedError,
    VolleyError,
)

__all__ = [
    "DEFAULT",
    "FAILED",
    "UNREACHABLE",
    "USAGE",
    "WRONG",
    "WRONG_FILE",
    "AsJson",
    "File",
    "choose",
    "code_of",
    "error",
    "loaded",
    "log_to_stderr",
    "named_in_file",
    "print_json",
    "print_rows",
    "reported",
    "say",
]

FAILED, USAGE, UNREACHABLE, WRONG_FILE = 1, 2, 69, 78
"""The exit codes: a pipeline or a command failed; wrong arguments; something can't be reached; the file is wrong."""

File = Annotated[
    Path, typer.Option("--config", "-c", envvar="VOLLEY_CONFIG", metavar="FILE", help="The file with the pipelines.")
]
DEFAULT = Path("volley.yaml")
"""The file without --config."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_OPTIONS = {r"\bfresh=True": "--fresh", r"\bbackfill=True": "--backfill", r'\binto="(\w+)"': r"--into \1"}
WRONG = (ConfigError, ExpressionError, PlanError, SchemaMismatchError)
"""The errors for which a file is to blame."""
_CANT_REACH = (CatalogAuthError, CatalogUnreachableError, SourceError, StorageError)
# The table was reached, and is not what was asked for.
_REACHED = (
    SchemaChangedError,
    SnapshotExpiredError,
    SnapshotNotFoundError,
    SnapshotRolledBackError,
    TableReplacedError,
)
_WRONG_OPTIONS = (ConfigError, ExpressionError, SnapshotNotFoundError, SnapshotRolledBackError)


class _MaskedLines(logging.Formatter):
    """Masks secrets in log lines and in the tracebacks below them."""

    def __init__(self, config: Config) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._config = config

    def formatMessage(self, record: logging.LogRecord) -> str:
        return _as_options(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return self._config.redact(super().format(record))


def loaded(file: Path) -> Config:
    """Return what a file says; print its mistakes and exit with 78 if it has any."""
    try:
        config = load_config(file)
    except VolleyError as problem:
        error(str(problem))
        raise typer.Exit(WRONG_FILE) from None
    for warning in config.warnings:
        error(f"{config.file}: warning: {warning}")
    return config


def named_in_file(*parts: str) -> Callable[[typer.Context, str], list[str]]:
    """Return what a shell completes the name of a source, sink or pipeline with: those that the file has.

    Args:
        parts: Parts of `Config`, such as ``"sinks"``.
    """

    def names(context: typer.Context, incomplete: str) -> list[str]:
        try:
            config = load_config(context.params.get("file") or DEFAULT)
        except Exception:
            # Whoever types a command is told nothing of a file that is wrong.
            return []
        return [name for part in parts for name in getattr(config, part) if name.startswith(incomplete)]

    return names


@contextmanager
def reported(config: Config, options: bool = False) -> Iterator[None]:
    """Print an error of the block without its traceback and exit with its code.

    Args:
        options: True if the user gave options that the block uses: what they name may not exist.
    """
    try:
        yield
    except VolleyError as problem:
        error(config.redact(str(problem)))
        wrong = options and problem.place is None and isinstance(problem, _WRONG_OPTIONS)
        raise typer.Exit(USAGE if wrong else code_of([problem])) from None


def code_of(problems: Sequence[VolleyError]) -> int:
    """Return the exit code for errors: 78 if the file is to blame for all, 69 if all can't reach something, else 1."""
    if all(problem.place is not None and isinstance(problem, WRONG) for problem in problems):
        return WRONG_FILE
    unreached = (isinstance(problem, _CANT_REACH) and not isinstance(problem, _REACHED) for problem in problems)
    return UNREACHABLE if all(unreached) else FAILED


def choose(part: str, name: str, known: Sequence[str]) -> str:
    """Return the name of a part of the file; exit with 2 if there is none of that name."""
    if name not in known:
        error(f"there is no {part} {name!r}\n  hint: {nearest(name, known)}")
        raise typer.Exit(USAGE)
    return name


def say(text: str, config: Config) -> None:
    """Print a text to stdout, secrets masked."""
    print(config.redact(text), flush=True)


def error(text: str) -> None:
    """Print a text to stderr; arguments of `Environment.execute` in its hints become options of ``volley run``."""
    print(_as_options(text), file=sys.stderr, flush=True)


def print_json(values: Any, config: Config | None = None) -> None:
    """Print values as JSON, secrets in their texts masked: numbers and booleans are none."""
    if config is not None:
        values = _masked(json.loads(json.dumps(values, default=str)), config)
    print(json.dumps(values, indent=2, default=str, ensure_ascii=False))


def _masked(value: Any, config: Config) -> Any:
    if isinstance(value, dict):
        return {key: _masked(inner, config) for key, inner in value.items()}
    if isinstance(value, list):
        return [_masked(inner, config) for inner in value]
    return config.redact(value) if isinstance(value, str) else value


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[object]], config: Config) -> None:
    """Print rows as a table, as wide as the terminal, secrets masked; the first column is not broken into lines."""
    heads = [Column(name, no_wrap=number == 0) for number, name in enumerate(columns)]
    table = Table(*heads, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for row in rows:
        table.add_row(*(_cell(value, config) for value in row))
    Console().print(table)


_COLORS = {"ok": "green", "failed": "red", "skipped": "dim", "yes": "green", "no": "dim"}


def _cell(value: object, config: Config) -> Text:
    text = "" if value is None else str(value)
    return Text(config.redact(text), style=_COLORS.get(text, ""), overflow="fold")


def log_to_stderr(config: Config) -> None:
    """Write log lines to stderr, those of Volley from INFO on, secrets masked."""
    handler = logging.StreamHandler()
    handler.setFormatter(_MaskedLines(config))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("volley").setLevel(logging.INFO)


def _as_options(text: str) -> str:
    for argument, option in _OPTIONS.items():
        text = re.sub(argument, option, text)
    return text
