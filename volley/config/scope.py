"""What the steps of a pipeline in YAML refer to: other sources, and SQL texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from volley.documents.collector import Collector
from volley.documents.mistakes import Path
from volley.errors import ExpressionError
from volley.plan.expressions import Expr, lit
from volley.plan.sql import sql
from volley.stream import DataStream

__all__ = ["Expression", "Scope"]

Expression = str | bool | int | float
"""An expression as SQL text, or a constant."""

_PLACE = re.compile(r" in line (\d+), column (\d+)\n.*", re.DOTALL)


@dataclass(frozen=True)
class Scope:
    """What a step can refer to.

    Args:
        collector: Takes the mistakes.
        streams: The streams of the other sources, by name.
    """

    collector: Collector
    streams: Mapping[str, DataStream]

    def expression(self, value: Expression, path: Path) -> Expr | None:
        """Return the expression of a SQL text, or a constant; None if the text is wrong.

        Args:
            value: The text or the constant.
            path: Where it stands.
        """
        if not isinstance(value, str):
            return lit(value)
        try:
            return sql(value)
        except ExpressionError as error:
            place = _PLACE.search(error.message)
            shift = int(place[2]) - 1 if place and place[1] == "1" and "\n" not in value else 0
            document = self.collector.document
            if document is not None and shift and document.place(path).text[document.place(path).column - 1] in "'\"":
                shift += 1
            self.collector.add(path, _PLACE.sub("", error.message), error.hint, shift=shift)
            return None

    def expressions(self, values: Mapping[str, Expression], path: Path) -> dict[str, Expr]:
        """Return the expressions of several columns, without those whose text is wrong."""
        columns = {name: self.expression(value, (*path, name)) for name, value in values.items()}
        return {name: column for name, column in columns.items() if column is not None}
