"""What pipelines and views of a file refer to: its sources and sinks by name, and SQL texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from volley.contracts.sink import Sink
from volley.contracts.source import Source
from volley.documents.collector import Collector
from volley.documents.mistakes import Path, nearest
from volley.documents.models import Model, given
from volley.environment import Environment
from volley.errors import ExpressionError, VolleyError
from volley.plan.expressions import Expr, lit
from volley.plan.places import Place, written_at
from volley.plan.sql import sql
from volley.stream.stream import DataStream

__all__ = ["Expression", "Parts", "Scope"]

P = TypeVar("P", Source, Sink)

Expression = str | bool | int | float
"""An expression as SQL text, or a constant."""

_PLACE = re.compile(r" in line (\d+), column (\d+)\n.*", re.DOTALL)


@dataclass(frozen=True)
class Parts(Generic[P]):
    """The sources or sinks of a file.

    Args:
        kind: ``"source"`` or ``"sink"``.
        values: Each by its name; None for one that has mistakes itself.
        used: The names that something has referred to, in that order.
    """

    kind: str
    values: Mapping[str, P | None]
    collector: Collector
    used: list[str] = field(default_factory=list)

    def find(self, name: str, path: Path) -> P | None:
        """Return the part of a name; None if there is none, or it has mistakes."""
        if name not in self.values:
            self.collector.add(path, f"there is no {self.kind} {name!r}", nearest(name, self.values))
        self.used.append(name)
        return self.values.get(name)

    @property
    def unused(self) -> list[str]:
        """The names that nothing has referred to."""
        return [name for name in self.values if name not in self.used]


@dataclass(frozen=True)
class Scope:
    """What steps refer to.

    Args:
        paths: The paths of steps, sources and sinks, by their places in the file.
    """

    collector: Collector
    environment: Environment
    sources: Parts[Source]
    paths: dict[str, Path] = field(default_factory=dict)

    @contextmanager
    def at(self, path: Path) -> Iterator[None]:
        """Name the place of a path in the errors of all steps that are built in the block."""
        document = self.collector.document
        if document is None:
            yield
            return
        document_place = document.place(path)
        place = Place(document.file, document_place.line, document_place.column)
        self.paths.setdefault(str(place), path)
        with written_at(place):
            yield

    def stream(self, name: str, path: Path, snapshots: Model | None = None) -> DataStream | None:
        """Return the rows of a source; arguments and None as of `Parts.find`.

        Args:
            snapshots: How its extracts are compared; None = they are not.
        """
        source = self.sources.find(name, path)
        if source is not None and snapshots is not None:
            settings = {"source": source} | given(snapshots)
            place = (*path[:-1], "changes_from_snapshots")
            with self.at(place):
                return self.collector.make(self.environment.changes_from_snapshots, settings, place)
        with self.at(("sources", name)):
            return None if source is None else self.environment.from_source(source)

    def query(self, value: str | Model, path: Path) -> DataStream | None:
        """Return the rows of a query in SQL over sources, by their names; None if it has mistakes.

        Args:
            value: The text, or a model with it.
        """
        from volley.queries.statements import tables_of

        settings: dict[str, Any] = {"text": value} if isinstance(value, str) else given(value)
        text = settings.pop("text")
        try:
            settings |= {name: self.stream(name, path) for name in tables_of(text)}
            if None in settings.values():
                return None
            with self.at(path):
                return self.environment.sql(text, **settings)
        except VolleyError as error:
            self.collector.add(path, error.message.partition("\n")[0], error.hint)
            return None

    def expression(self, value: Expression, path: Path) -> Expr | None:
        """Return the expression of a SQL text, or a constant; None if the text is wrong."""
        if not isinstance(value, str):
            return lit(value)
        try:
            return sql(value)
        except ExpressionError as error:
            place = _PLACE.search(error.message)
            shift = int(place[2]) - 1 if place and place[1] == "1" and "\n" not in value else 0
            document = self.collector.document
            if document is not None and shift and document.is_quoted(path):
                shift += 1
            self.collector.add(path, _PLACE.sub("", error.message), error.hint, shift=shift)
            return None

    def expressions(self, values: Mapping[str, Expression], path: Path) -> dict[str, Expr]:
        """Return the expressions of several columns, without those whose text is wrong."""
        columns = {name: self.expression(value, (*path, name)) for name, value in values.items()}
        return {name: column for name, column in columns.items() if column is not None}
