"""The command that prints the first rows of something: of files, a topic, a source or sink of the file, a table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from volley.cli.output import DEFAULT, UNREACHABLE, USAGE, WRONG, File, error, loaded, named_in_file
from volley.config.values import Config
from volley.errors import ConfigError, VolleyError

if TYPE_CHECKING:
    from volley.connectors.files.source import FileSource

__all__ = ["head"]

_KAFKA = "kafka://"
_Rows = Callable[[int], Any]
"""Returns the first rows, so many at most."""


def head(
    target: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE_OR_TABLE",
            help="A file, folder, glob or URL; kafka://BROKERS/TOPIC; a source, a sink or its table in the file.",
            autocompletion=named_in_file("sources", "sinks"),
        ),
    ],
    file: File = DEFAULT,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The most rows.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a row.")] = False,
) -> None:
    """Print the first rows of a file, a topic or a table, read in this process, without Spark.

    The format of files is that of their content, whatever they are called. Nothing is written.

    Examples:

      volley head orders.csv

      volley head 'orders/*.json.gz' -n 3 --json

      volley head kafka://localhost:9092/orders

      volley head shop.orders
    """
    from volley.columns.readable import json_of, readable_rows
    from volley.columns.show import show

    config = _config(file)
    redact = (lambda text: text) if config is None else config.redact
    try:
        rows = _rows_of(target, config)(limit)
    except VolleyError as problem:
        error(redact(str(problem)))
        raise typer.Exit(USAGE if isinstance(problem, WRONG) else UNREACHABLE) from None
    if not as_json:
        show(rows)
        return
    for row in readable_rows(rows):
        print(json_of(row))


def _config(file: Path) -> Config | None:
    """Return what the file says; None = there is none, and none was named."""
    return None if file == DEFAULT and not file.exists() else loaded(file)


def _rows_of(target: str, config: Config | None) -> _Rows:
    from volley.environment import Environment

    if target.startswith(_KAFKA):
        return partial(_messages, target)
    if config is not None and target in config.sources:
        return Environment().from_source(config.sources[target]).to_arrow
    tables = _tables(config)
    if target in tables:
        return tables[target]
    if not _is_path(target):
        known = ", ".join([*(config.sources if config else ()), *tables]) or "no volley.yaml names one"
        raise ConfigError(f"{target!r} is no file, source or table", hint=f"known are: {known}")
    return Environment().from_source(_files(target)).to_arrow


def _is_path(target: str) -> bool:
    return Path(target).exists() or any(letter in target for letter in "/\\*?")


def _tables(config: Config | None) -> dict[str, _Rows]:
    """Return the tables of sinks, by the names of both."""
    from volley.iceberg.sink import IcebergSink

    sinks = {} if config is None else config.sinks
    tables = {name: sink for name, sink in sinks.items() if isinstance(sink, IcebergSink)}
    by_table = {sink.config.ref.name: sink for sink in tables.values()}
    return {name: sink.to_arrow for name, sink in {**by_table, **tables}.items()}


def _files(path: str) -> FileSource:
    """Return a source of the files of a path, in the format of the first one that is not empty."""
    from volley.connectors.files.listing import check_exists, check_not_empty, list_files
    from volley.connectors.files.source import FileSource
    from volley.formats.content import FIRST_BYTES, delimiter_of, format_of_content
    from volley.formats.files import format_of
    from volley.storage.paths import filesystem

    check_exists(path, {})
    check_not_empty(path, {})
    first = next((file for file in list_files(path, {}) if file.size), None)
    data = b""
    if first is not None:
        with suppress(OSError):
            data = filesystem(path, {})[0].cat_file(first.path, end=FIRST_BYTES)
    # Its name may tell what its content does not.
    name = format_of_content(data) or format_of(path if first is None else first.path)
    options = {"delimiter": delimiter_of(data)} if name == "csv" else {}
    return FileSource(path, format=name, options=options)  # type: ignore[arg-type]


def _messages(target: str, limit: int) -> Any:
    """Return the first messages of a topic that it still has; values and keys as text, if all of them are."""
    from volley.columns.readable import bytes_as_text
    from volley.connectors.kafka.source import KafkaSource
    from volley.environment import Environment

    brokers, _, topic = target.removeprefix(_KAFKA).partition("/")
    include = ["partition", "offset", "timestamp", "key"]
    source = KafkaSource(brokers, topic, value_format="raw", include=include, bounded=True)
    rows = Environment().from_source(source).to_arrow(limit)
    for name in ("kafka_key", "value"):
        rows = rows.set_column(rows.schema.get_field_index(name), name, [bytes_as_text(rows.column(name))])
    return rows
