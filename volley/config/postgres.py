"""PostgreSQL's change capture in YAML: the tables stand under ``streams``."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, create_model

from volley.documents.collector import Collector
from volley.documents.mistakes import Path
from volley.documents.models import Model, Names, given, model_of
from volley.registry import load

if TYPE_CHECKING:
    from volley.contracts.source import Source

__all__ = ["postgres_model", "postgres_source"]

_LOADS = {"incremental": "snapshot", "changes_only": "none"}


class Table(Model):
    """A table that is captured, or several."""

    name: str = Field(description="The table's name; * and ? stand for any characters.")
    namespace: str = Field("public", description="The table's schema, likewise.")
    sync_mode: Literal["incremental", "changes_only"] = Field(
        "incremental", description="incremental: its rows first, then every change; changes_only: only changes."
    )


@cache
def postgres_model() -> type[Model]:
    """Return the model of the settings under ``config``."""
    base = model_of(load("source", "postgres"), frozenset({"tables"}))
    tables: Any = (
        Names | None,
        Field(None, description='Tables, "schema.table"; * and ? stand for any characters. Or streams beside config.'),
    )
    return create_model("PostgresSource", __base__=base, tables=tables)


def postgres_source(values: Any, collector: Collector, path: Path) -> Source | None:
    """Return the source of a document's values; None after mistakes."""
    settings = {name: value for name, value in values.items() if name != "streams"}
    beside, listed = (*path[:-1], "streams"), values.get("streams", [])
    streams = [collector.check(Table, each, (*beside, number)) for number, each in enumerate(listed)]
    tables = [table for table in streams if table is not None]
    model = collector.check(postgres_model(), settings, path)
    if model is None:
        return None
    arguments = given(model)
    if tables:
        arguments["tables"] = [f"{table.namespace}.{table.name}" for table in tables]
        arguments["load"] = _LOADS[tables[0].sync_mode]
        if len({table.sync_mode for table in tables}) > 1:
            collector.add(beside, "streams differ in sync_mode", "a source of its own for each sync_mode")
    elif not arguments.get("tables"):
        collector.add(beside, "streams are missing", "streams: [{name: orders}]")
        return None
    source: Source | None = collector.make(load("source", "postgres"), arguments, path)
    return None if collector.has_mistakes(path[:-1]) else source
