"""Statements of SQL: the queries of a text, what is made of their rows, and the tables that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from volley.plan.sql_nodes import Mistake, mistakes_of
from volley.queries.parse import HINT, query_of, tokens_of
from volley.queries.tables import full_name

__all__ = ["Statement", "is_complete", "statements_of", "tables_of"]

_Kind = Literal["select", "view", "table", "insert", "tables"]
_BEGINNINGS: Sequence[tuple[_Kind, Sequence[str]]] = [
    ("view", ("create", "materialized", "view")),
    ("table", ("create", "table")),
    ("insert", ("insert", "into")),
]


@dataclass(frozen=True)
class Statement:
    """One statement.

    Args:
        kind: What becomes of the query's rows: they are shown, kept up to date as a view, or written to a table that
            is made, or is there; or that it has no query, and shows the tables.
        target: The name of the view or table; "" = there is none.
        query: The query, at its place in the text.
        tables: The names of the tables that it reads, each once.
    """

    kind: _Kind
    target: str
    query: str
    tables: tuple[str, ...]


def statements_of(text: str) -> list[Statement]:
    """Return the statements of a text, which end with semicolons.

    Raises:
        ExpressionError: If one of them can't be read.
    """
    with mistakes_of(text, HINT):
        return [_statement(text, tokens) for tokens in _divided(tokens_of(text))]


def tables_of(text: str) -> tuple[str, ...]:
    """Return the names of the tables that a query reads, each once.

    Raises:
        ExpressionError: If the text is no query.
    """
    with mistakes_of(text, HINT):
        return _tables_in(query_of(text))


def is_complete(text: str) -> bool:
    """Return True if the last statement of a text ends with its semicolon."""
    try:
        tokens = tokens_of(text)
    except TokenError:
        # A text in quotes goes on in the next line.
        return False
    return bool(tokens) and tokens[-1].token_type is TokenType.SEMICOLON


def _divided(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    statement = list[Token]()
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            statement.append(token)
        elif statement:
            yield statement
            statement = []
    if statement:
        yield statement


def _statement(text: str, tokens: list[Token]) -> Statement:
    words = [token.text.lower() for token in tokens]
    if words == ["show", "tables"]:
        return Statement("tables", "", "", ())
    kind, target, start = next(
        (
            (kind, *_target(tokens, len(beginning), "as" if beginning[0] == "create" else None))
            for kind, beginning in _BEGINNINGS
            if tuple(words[: len(beginning)]) == beginning
        ),
        ("select", "", 0),
    )
    begin, end = tokens[start].start, tokens[-1].end + 1
    # Errors name the place in the whole text.
    query = re.sub(r"[^\n]", " ", text[:begin]) + text[begin:end]
    return Statement(kind, target, query, _tables_in(query_of(query)))


def _tables_in(tree: exp.Query) -> tuple[str, ...]:
    """Return the names of the tables that a query reads, each once."""
    own = {table.alias for table in tree.find_all(exp.CTE)}
    names = (full_name(table) for table in tree.find_all(exp.Table))
    return tuple(dict.fromkeys(name for name in names if name not in own))


def _target(tokens: Sequence[Token], start: int, behind: str | None) -> tuple[str, int]:
    """Return the name at a place, and the place of the query behind it."""
    place, parts = start, list[str]()
    while place < len(tokens):
        parts.append(tokens[place].text)
        place += 1
        if place == len(tokens) or tokens[place].token_type is not TokenType.DOT:
            break
        place += 1
    if behind is not None and place < len(tokens) and tokens[place].text.lower() == behind:
        place += 1
    elif behind is not None:
        place = len(tokens)
    if place >= len(tokens):
        node = exp.Null()
        node.meta["start"] = tokens[min(start, len(tokens) - 1)].start
        raise Mistake("a statement without a query", node, "create table t as select …; insert into t select …")
    return ".".join(parts), place
