"""Joins in YAML: the table is an Iceberg source of the file, by its name."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from volley.config.scope import Scope
from volley.documents.mistakes import Path
from volley.documents.models import Model, Names, Size, given
from volley.stream import DataStream

__all__ = ["JoinStep", "join"]


class JoinStep(Model):
    """How the columns of a table are added; see `DataStream.join`."""

    table: str = Field(description="The name of an Iceberg source; each epoch looks it up again, unless it is pinned.")
    on: Names | dict[str, str] = Field(description="The columns that both have, or {stream's: table's}.")
    how: Literal["inner", "left"] = Field("inner", description="Drop rows without a match, or keep them with nulls.")
    as_of: list[str] | None = Field(
        None, description="The stream's time column, and the table's column that says since when a row is valid."
    )
    columns: Names | None = Field(None, description="The table's columns to add; without it, all but its keys.")
    suffix: str | None = Field(None, description="The end of the added columns' names.")
    max_bytes: Size | None = Field(None, description="The most bytes of the table's rows in memory; 256MB by default.")


def join(stream: DataStream, step: JoinStep, scope: Scope, path: Path) -> DataStream:
    """Return the stream with the columns of a step's table."""
    source = scope.sources.find(step.table, (*path, "table"))
    if source is None:
        return stream
    arguments = {name: value for name, value in given(step).items() if name != "table"}
    if step.as_of is not None:
        arguments["as_of"] = tuple(step.as_of)
    return stream.join(source, **arguments)
