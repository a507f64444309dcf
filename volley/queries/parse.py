"""Reads the text of a query into a tree, and refuses what Spark would read otherwise."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from volley.errors import ExpressionError
from volley.plan.sql_nodes import ExpressionParser, Mistake

__all__ = ["HINT", "is_decimal", "query_of", "tokens_of"]

HINT = "write one query: select …"
_DECIMAL = "decimal"
_HIGHER = (exp.Add, exp.Sub)
_WITH_FORMAT = ("to_date", "to_timestamp")


class _Tokenizer(Tokenizer):
    """Names are quoted by backquotes; double quotes are read as such, so that they can be refused with their place."""

    IDENTIFIERS = ["`", '"']
    # `window` is a function here.
    KEYWORDS = {word: token for word, token in Tokenizer.KEYWORDS.items() if word != "WINDOW"}


class _Parser(ExpressionParser):
    """Reads queries: items of a list may have a name without AS."""

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:
        # Of `1_000`, the number is followed by a name at once.
        is_near = self._prev is not None and self._curr is not None and self._prev.end + 1 == self._curr.start
        return Parser._parse_alias(self, this, explicit=explicit or is_near)


class _Dialect(Dialect):
    """Queries without the functions of any engine."""

    Tokenizer = _Tokenizer
    Parser = _Parser


def query_of(text: str) -> exp.Query:
    """Return the tree of a query.

    Raises:
        ExpressionError: If the text has no query, or several.
        Mistake: If Spark would read a part otherwise.
    """
    _check_quotes(text)
    trees = _Dialect().parse(text)
    if not trees or trees[0] is None:
        raise ExpressionError("the SQL text is empty", hint=HINT)
    if len(trees) > 1:
        raise ExpressionError("the SQL text has several statements", hint="leave ; out")
    tree = trees[0]
    if not isinstance(tree, exp.Query):
        raise ExpressionError(f"SQL's {str(tree.key).upper()} is no query", hint=HINT)
    for node in tree.walk():
        _check_operators(node)
        _check_format(node)
        if (
            isinstance(node, exp.Literal)
            and not node.is_string
            and set(node.this).isdisjoint("eE")
            and "." in node.this
        ):
            # The mark stays where a constant is not read as one of its column's type.
            node.meta[_DECIMAL] = True
    return tree


def tokens_of(text: str) -> list[Token]:
    """Return the words and marks of a text."""
    return _Dialect().tokenize(text)


def is_decimal(node: exp.Expr) -> bool:
    """Return True for a number that the text has with a point: a decimal."""
    return _DECIMAL in node.meta


def _check_quotes(text: str) -> None:
    for token in tokens_of(text):
        if token.token_type is TokenType.IDENTIFIER and text[token.start] == '"':
            raise Mistake(
                f'"{token.text}" is a text in Spark, and a name elsewhere',
                _place(token.start),
                f"write '{token.text}' for a text, `{token.text}` for a name",
            )
        if token.token_type is TokenType.STRING and "\\" in token.text:
            raise Mistake(
                f"the text {token.text!r} has a backslash, which Spark drops or reads with the character behind it",
                _place(token.start),
                "write [0-9] for a digit, [.] for a point; build other texts by the methods of col",
            )


def _place(start: int) -> exp.Expression:
    node = exp.Null()
    node.meta["start"] = start
    return node


def _check_format(node: exp.Expr) -> None:
    """Refuse formats of times: Spark has letters of its own, as yyyy-MM-dd, where functions here take %Y-%m-%d."""
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    if name == "strftime" or (name in _WITH_FORMAT and len(node.expressions) > 1):
        hint = (
            "date_format(at, 'yyyy-MM-dd') makes texts; a column of the stream can be computed before: "
            "stream.with_column(name, col(text).str.to_date(…))"
        )
        raise Mistake(f"{node.name} with a format", node, hint)


def _check_operators(node: exp.Expr) -> None:
    """Refuse `a || b + c`: Spark joins a and b first, sqlglot adds b and c first."""
    if isinstance(node, exp.DPipe) and (isinstance(node.this, _HIGHER) or isinstance(node.expression, _HIGHER)):
        raise Mistake("|| stands beside + or -", node, "put what comes first into parentheses")
