"""Joins in YAML: a table is an Iceberg source of the file, a stream any source, by their names."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from volley.config.scope import Scope
from volley.documents.mistakes import Path
from volley.documents.models import Model, Names, Size, Span, Whole, given
from volley.errors import ConfigError
from volley.stream.stream import DataStream

__all__ = ["JoinStep", "join"]


class JoinStep(Model):
    """How the columns of a table, or of another stream, are added; see `DataStream.join`."""

    table: str | None = Field(
        None, description="The name of an Iceberg source; each epoch looks it up again, unless it is pinned."
    )
    stream: str | None = Field(None, description="Instead of table: the name of a source, whose rows match in time.")
    on: Names | dict[str, str] = Field(description="The columns that both have, or {stream's: other's}.")
    how: Literal["inner", "left"] = Field("inner", description="Drop rows without a match, or keep them with nulls.")
    as_of: Names | None = Field(
        None,
        description="For a table: the stream's time column, for the rows that the table had then; or that column and "
        "the table's one that says since when a row is valid.",
    )
    columns: Names | None = Field(None, description="The other's columns to add; without it, all but its keys.")
    suffix: str | None = Field(None, description="The end of the added columns' names.")
    max_bytes: Size | None = Field(
        None,
        description="For a table: the most bytes of its rows in memory, 256MB by default; a larger one is divided.",
    )
    within: Span | list[Span] | None = Field(
        None, description="For a stream: how far apart rows are that match, or how much earlier and how much later."
    )
    time: Names | None = Field(None, description="For a stream: the timestamp column of both, or of each.")
    lateness: Span | None = Field(None, description="For a stream: how much older than the latest row one can be.")
    late: Literal["drop", "dead_letter"] | None = Field(None, description="For a stream: where late rows go.")
    max_ahead: Span | None = Field(None, description="For a stream: how far ahead of the clock; null = no limit.")
    idle_after: Span | None = Field(None, description="For a stream: an idle source holds nothing back after it.")
    buckets: Whole | None = Field(None, description="For a stream: the number of parts of the state.")


def join(stream: DataStream, step: JoinStep, scope: Scope, path: Path) -> DataStream:
    """Return the stream with the columns of a step's table or stream."""
    if (step.table is None) == (step.stream is None):
        raise ConfigError("a join has one of table and stream", hint="{table: customers, on: id}")
    other: Any = None
    if step.table is not None:
        other = scope.sources.find(step.table, (*path, "table"))
    elif step.stream is not None:
        other = scope.stream(step.stream, (*path, "stream"))
    if other is None:
        return stream
    arguments = {name: value for name, value in given(step).items() if name not in ("table", "stream")}
    pairs = {name: _pair(value) for name, value in arguments.items() if name in ("as_of", "within", "time")}
    return stream.join(other, **arguments | pairs)


def _pair(value: Any) -> Any:
    """Return a list as a pair; one name or time span stands for both."""
    if not isinstance(value, list):
        return value
    return value[0] if len(value) == 1 else tuple(value)
