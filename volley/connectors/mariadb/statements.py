"""What statements in the binary log do to tables, as far as their rows change without row events."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from volley.capture.selection import TableName

__all__ = ["Altered", "Created", "Dropped", "Effect", "Filled", "Renamed", "RowsChanged", "Truncated", "effects"]

_TOKEN = re.compile(
    r"/\*(?!M?!).*?\*/|(?:--[ \t]|#)[^\n]*|(?P<quoted>`(?:[^`]|``)*`)|"
    r"(?P<text>'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\")|(?P<word>[\w$]+)|(?P<sign>[.,()=*;])|\s+|.",
    re.DOTALL,
)
_EXECUTED = re.compile(r"/\*M?!\d*(.*?)\*/", re.DOTALL)
_ROW_WORDS = ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "MERGE")
_MAKES_VALUES = {"DEFAULT", "NOT", "AS", "GENERATED", "AUTO_INCREMENT", "SERIAL", "ROW", "USING", "PERIOD"}
_PARTITIONS = {"TRUNCATE", "DROP", "EXCHANGE", "CONVERT"}
# Rows that do not fit what these clauses make are deleted or changed by IGNORE.
_CHECKS_ROWS = {"ADD", "MODIFY", "CHANGE", "CONVERT"}
_NO_COLUMN = {
    *("INDEX", "KEY", "PRIMARY", "UNIQUE", "FULLTEXT", "SPATIAL", "FOREIGN", "CONSTRAINT", "CHECK", "PARTITION"),
    *("PERIOD", "SYSTEM"),
}


@dataclass(frozen=True)
class Truncated:
    """All rows of a table went."""

    table: TableName


@dataclass(frozen=True)
class Dropped:
    """A table went; without a table's name, all of a database."""

    table: TableName


@dataclass(frozen=True)
class Created:
    """A table was made; `replaces` if one of its name may have been there."""

    table: TableName
    replaces: bool


@dataclass(frozen=True)
class Renamed:
    """A table got another name."""

    table: TableName
    name: TableName


@dataclass(frozen=True)
class Filled:
    """A table has rows now that another one had, by a clause."""

    table: TableName
    clause: str


@dataclass(frozen=True)
class Altered:
    """A table got another form.

    Args:
        added: The columns that are added whose older rows have null.
        filled: Why rows may have other values now, although the log has no change of them; None = they have not.
    """

    table: TableName
    added: tuple[str, ...]
    dropped: tuple[str, ...]
    filled: str | None


@dataclass(frozen=True)
class RowsChanged:
    """A statement changed rows, and is logged instead of them."""

    tables: tuple[TableName, ...]  # all that it may have changed


Effect = Truncated | Dropped | Created | Renamed | Filled | Altered | RowsChanged


def effects(database: str, text: str, is_strict: bool = True) -> list[Effect]:
    """Return what a statement does to tables, in its order.

    Args:
        database: The default database.
        is_strict: True: a value that does not fit its column is an error; False: another one takes its place.

    Example:
        >>> effects("shop", "truncate table `orders`")
        [Truncated(table=TableName(schema='shop', table='orders'))]
    """
    tokens = list(_tokens(_EXECUTED.sub(r" \1 ", text)))
    return list(_Statement(database, tokens, is_strict).effects()) if tokens else []


@dataclass(frozen=True)
class _Token:
    text: str
    is_name: bool  # True if it is quoted as a name

    @property
    def word(self) -> str:
        return "" if self.is_name else self.text.upper()

    @property
    def name(self) -> str:
        """The name that it is: with sql_mode=ANSI_QUOTES, names stand in double quotes."""
        return self.text[1:-1].replace('""', '"') if self.text.startswith('"') and not self.is_name else self.text


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        if match["quoted"]:
            yield _Token(match["quoted"][1:-1].replace("``", "`"), True)
        elif match["text"] or match["word"] or match["sign"]:
            yield _Token(match[0], False)


class _Statement:
    def __init__(self, database: str, tokens: Sequence[_Token], is_strict: bool = True) -> None:
        self._database = database
        self._is_strict = is_strict
        self._tokens = tokens
        self._at = 0

    def effects(self) -> Iterator[Effect]:
        if self._peek() == "SET" and self._peek(1) == "STATEMENT":
            # Settings of this statement alone, which is logged with them.
            while self._at < len(self._tokens) and not self._skip("FOR"):
                self._at += 1
        if self._peek() in _ROW_WORDS:
            yield RowsChanged(tuple(self._all_names()))
        elif self._skip("TRUNCATE"):
            self._skip("TABLE")
            yield Truncated(self._name())
        elif self._skip("RENAME") and self._skip("TABLE", "TABLES"):
            yield from self._renamed()
        elif self._skip("DROP"):
            yield from self._dropped()
        elif self._skip("CREATE"):
            yield from self._created()
        elif self._skip("ALTER"):
            yield from self._altered()

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at].word if at < len(self._tokens) else ""

    def _skip(self, *words: str) -> bool:
        if self._peek() in words:
            self._at += 1
            return True
        return False

    def _skip_condition(self) -> None:
        if self._skip("IF"):
            self._skip("NOT")
            self._skip("EXISTS")

    def _name(self) -> TableName:
        first = self._take()
        if self._skip("."):
            return TableName(first, self._take())
        return TableName(self._database, first)

    def _take(self) -> str:
        token = self._tokens[self._at]
        self._at += 1
        return token.name

    def _all_names(self) -> Iterator[TableName]:
        """Yield every name that could be one of a table."""
        for at, token in enumerate(self._tokens):
            if token.is_name or re.fullmatch(r"[\w$]+|\".*\"", token.text, re.DOTALL):
                yield TableName(self._database, token.name)
                if at + 2 < len(self._tokens) and self._tokens[at + 1].text == ".":
                    yield TableName(token.name, self._tokens[at + 2].name)

    def _renamed(self) -> Iterator[Effect]:
        while True:
            self._skip_condition()
            table = self._name()
            while not self._skip("TO"):
                self._at += 1
            yield Renamed(table, self._name())
            if not self._skip(","):
                return

    def _dropped(self) -> Iterator[Effect]:
        if self._skip("DATABASE", "SCHEMA"):
            self._skip_condition()
            yield Dropped(TableName(self._take(), "*"))
        elif self._skip("TABLE", "TABLES"):
            self._skip_condition()
            yield Dropped(self._name())
            while self._skip(","):
                yield Dropped(self._name())

    def _created(self) -> Iterator[Effect]:
        replaces = self._skip("OR") and self._skip("REPLACE")
        if self._skip("TABLE"):
            self._skip_condition()
            yield Created(self._name(), replaces)

    def _altered(self) -> Iterator[Effect]:
        self._skip("ONLINE")
        ignores = self._skip("IGNORE")
        if not self._skip("TABLE"):
            return
        self._skip_condition()
        table = self._name()
        if self._skip("WAIT"):
            self._at += 1
        self._skip("NOWAIT")
        added: list[str] = []
        dropped: list[str] = []
        filled: str | None = None
        others: list[Effect] = []
        for clause in self._clauses():
            words = [token.word for token in clause]
            if words[0] == "RENAME" and _is_table_rename(words):
                others.append(Renamed(table, self._named(clause[2 if words[1] in ("TO", "AS") else 1 :])))
            elif words[0] == "DROP" and (name := _column_of(clause)):
                dropped.append(name)
            else:
                names, reason = _added(clause)
                added += names
                fits = not (ignores and words[0] in _CHECKS_ROWS) and (self._is_strict or not _forbids_nulls(words))
                filled = filled or reason or (None if fits else _text(clause))
                others += self._exchanged(clause, words)
        yield Altered(table, tuple(added), tuple(dropped), filled)
        yield from others

    def _exchanged(self, clause: Sequence[_Token], words: Sequence[str]) -> Iterator[Effect]:
        """Yield what moves rows between a partition and a table."""
        if words[:2] in (["EXCHANGE", "PARTITION"], ["CONVERT", "PARTITION"]) and "TABLE" in words[3:]:
            yield Filled(self._named(clause[words.index("TABLE", 3) + 1 :]), _text(clause))
        elif words[:2] == ["CONVERT", "TABLE"]:
            yield Dropped(self._named(clause[2:]))

    def _named(self, tokens: Sequence[_Token]) -> TableName:
        return _Statement(self._database, tokens)._name()

    def _clauses(self) -> Iterator[list[_Token]]:
        depth, clause = 0, list[_Token]()
        for token in self._tokens[self._at :]:
            depth += {"(": 1, ")": -1}.get(token.word, 0)
            if token.word in (",", ";") and not depth:
                if clause:
                    yield clause
                clause = []
            else:
                clause.append(token)
        if clause:
            yield clause


def _is_table_rename(words: Sequence[str]) -> bool:
    return len(words) > 1 and words[1] not in ("COLUMN", "INDEX", "KEY")


def _after_condition(clause: Sequence[_Token], at: int) -> int:
    words = [token.word for token in clause]
    if words[at : at + 1] == ["COLUMN"]:
        at += 1
    if words[at : at + 1] == ["IF"]:
        at += 3 if words[at + 1 : at + 2] == ["NOT"] else 2
    return at


def _column_of(clause: Sequence[_Token]) -> str | None:
    """Return the column that a clause adds or drops; None if it is of something else."""
    at = _after_condition(clause, 1)
    return None if at >= len(clause) or clause[at].word in _NO_COLUMN else clause[at].name


def _text(clause: Sequence[_Token]) -> str:
    return " ".join(token.text for token in clause)[:100]


def _added(clause: Sequence[_Token]) -> tuple[list[str], str | None]:
    """Return the columns that a clause adds, and why rows may have other values after it."""
    words = [token.word for token in clause]
    text = _text(clause)
    if words[0] == "ADD" and len(words) > 1:
        at = _after_condition(clause, 1)
        if words[at : at + 1] == ["("]:
            # Several columns in parentheses: each begins behind a comma.
            parts = list(_Statement("", clause[at + 1 : -1])._clauses())
            names = [part[0].name for part in parts if part[0].word not in _NO_COLUMN]
            return names, text if any(_has_values(part) for part in parts) else None
        name = _column_of(clause)
        return ([], None) if name is None else ([name], text if _has_values(clause) else None)
    if words[0] == "CHANGE":
        at = _after_condition(clause, 1)
        is_same = len({token.name.lower() for token in clause[at : at + 2]}) == 1
        return [], None if is_same else text
    is_other = words[0] in ("DISCARD", "IMPORT") or words[:2] in (["RENAME", "COLUMN"], ["CONVERT", "TABLE"])
    if is_other or (words[0] in _PARTITIONS and words[1:2] == ["PARTITION"]):
        return [], text
    return [], None


def _forbids_nulls(words: Sequence[str]) -> bool:
    """Return True if a clause makes a column one without nulls, which become other values."""
    after = pairwise(words)
    return words[0] in ("MODIFY", "CHANGE") and ("NOT", "NULL") in after


def _has_values(clause: Sequence[_Token]) -> bool:
    words = [token.word for token in clause]
    # Some servers give a timestamp the current time, if it may not be null.
    if "TIMESTAMP" in words and "NULL" not in words:
        return True
    nulls = {at for at, word in enumerate(words) if word == "DEFAULT" and words[at + 1 : at + 2] == ["NULL"]}
    return any(word in _MAKES_VALUES and at not in nulls for at, word in enumerate(words))
