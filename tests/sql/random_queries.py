"""Random queries over small tables, as texts that Spark and DuckDB read alike."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = ["SCHEMA", "Draw", "in_duckdb", "random_rows"]

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "k": pa.int32(),
        "n": pa.int64(),
        "m": pa.decimal128(10, 2),
        "x": pa.float64(),
        "s": pa.string(),
        "d": pa.date32(),
        "p": pa.bool_(),
        "ts": pa.timestamp("us", "UTC"),
    }
)
_KINDS = {"id": "int", "k": "int", "n": "int", "m": "decimal", "x": "double", "s": "text", "d": "date", "p": "bool"}
_LITERALS = {
    "int": ["0", "1", "2", "3", "7"],
    "decimal": ["0.5", "1.25", "2.50", "10.00"],
    "double": ["cast(0.5 as double)", "cast(2 as double)"],
    "text": ["'a'", "'B'", "''", "'O''Neil'"],
    "date": ["date '2026-01-31'", "date '2026-02-28'"],
    "bool": ["true", "false"],
}
_TYPES = {"int": "bigint", "decimal": "decimal(12,3)", "double": "double", "text": "string", "date": "date"}


def random_rows(chance: random.Random, most: int = 12, first: int = 0) -> list[dict[str, Any]]:
    """Return some rows, in the order of their times but for some seconds; each value but those is null at times."""
    rows = []
    for number in range(chance.randrange(most)):
        row = {
            "k": chance.randrange(4),
            "n": chance.randrange(-2, 4),
            "m": Decimal(chance.randrange(-200, 500)) / 100,
            # Sums of quarters are exact in any order.
            "x": chance.choice([-1.5, -0.0, 0.0, 0.25, 1.0, 2.75]),
            "s": chance.choice(["a", "b", "B", "ab", "", "O'Neil"]),
            "d": date(2026, 1, 30) + timedelta(days=chance.randrange(60)),
            "p": chance.random() < 0.5,
        }
        known = {name: None if chance.random() < 0.2 else value for name, value in row.items()}
        seconds = 3 * number + chance.randrange(10)
        rows.append(
            {"id": first + number, **known, "ts": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)}
        )
    return rows


_IN_DUCKDB = [(r"left (semi|anti) join", r"\1 join"), (r"\bstring\b", "varchar")]


def in_duckdb(text: str) -> str:
    """Return a query as DuckDB reads it."""
    for pattern, other in _IN_DUCKDB:
        text = re.sub(pattern, other, text)
    return text


@dataclass(frozen=True)
class Column:
    """A column that can be named.

    Args:
        name: As it is written.
        kind: One of int, decimal, double, text, date, bool.
    """

    name: str
    kind: str


Columns = list[Column]


class Draw:
    """Draws the parts of one query.

    Args:
        tables: The names of the tables, which have the columns of `SCHEMA`.
    """

    def __init__(self, chance: random.Random, tables: list[str]) -> None:
        self._chance, self._tables = chance, tables
        self._names = 0

    def query(self) -> str:
        """Return a query of one of all shapes."""
        text, columns = self._any(2)
        return text + self._first(columns) if self._is(0.2) else text

    def _first(self, columns: Columns) -> str:
        """Return the clauses of the first rows by all columns: of an order that tells different rows apart."""
        return f" order by {', '.join(self._ordered(columns))} limit {self._chance.randrange(6)}"

    def _ordered(self, columns: Columns) -> list[str]:
        """Return all columns in some order, each with a direction."""
        keys = [
            f"{column.name} {self._of(['asc', 'desc', 'asc nulls last', 'desc nulls first'])}" for column in columns
        ]
        self._chance.shuffle(keys)
        return keys

    def _is(self, share: float) -> bool:
        return self._chance.random() < share

    def _of(self, values: list[Any]) -> Any:
        return self._chance.choice(values)

    def _name(self, start: str) -> str:
        self._names += 1
        return f"{start}{self._names}"

    def _any(self, depth: int) -> tuple[str, Columns]:
        """Return a query and its columns, by the names of its list."""
        if depth and self._is(0.12):
            return self._set(depth - 1)
        if depth and self._is(0.08):
            name = self._name("c")
            text, columns = self._any(depth - 1)
            other, listed = self._over(f"{name} t", [Column(f"t.{column.name}", column.kind) for column in columns], 0)
            return f"with {name} as ({text}) {other}", listed
        source, columns = self._from(depth)
        return self._over(source, columns, depth)

    def _over(self, source: str, columns: Columns, depth: int) -> tuple[str, Columns]:
        """Return a query of rows, or of groups of rows."""
        where = self._where(columns, depth)
        if self._is(0.45):
            return self._grouped(source, columns, where, depth)
        listed = [self._listed(columns) for _ in range(self._chance.randrange(1, 4))]
        if depth and self._is(0.1):
            listed.append((self._scalar(columns), Column(self._name("v"), "int")))
        listed += [self._windowed(columns) for _ in range(self._of([0] * 7 + [1, 1, 2]))]
        distinct = "distinct " if self._is(0.15) else ""
        text = f"select {distinct}{self._as(listed)} from {source}{where}"
        if not distinct and self._is(0.06):
            value, column = self._windowed(columns)
            text += f" qualify {value} {self._of(['=', '<=', '>'])} {self._of(_LITERALS[column.kind])}"
        return text, [column for _, column in listed]

    def _as(self, listed: list[tuple[str, Column]]) -> str:
        return ", ".join(f"{text} as {column.name}" for text, column in listed)

    def _listed(self, columns: Columns) -> tuple[str, Column]:
        kind = self._of([*_KINDS.values()])
        return self._value(kind, columns, 2), Column(self._name("v"), kind)

    def _windowed(self, columns: Columns) -> tuple[str, Column]:
        """Return a function over the rows of a key, which has one value for rows that its order does not tell apart."""
        keys = [self._column(self._of(["int", "text", "bool"]), columns) for _ in range(self._of([0, 1, 1, 1, 2]))]
        by = f"partition by {', '.join(keys)} " if keys else ""
        kind = self._of(["int", "int", "text", "date", "decimal"])
        column, value = Column(self._name("v"), kind), self._value(kind, columns, 1)
        if self._is(0.4):
            order = f"{self._of([column.name for column in columns])}{self._of(['', ' desc', ' nulls last'])}"
            if self._is(0.5):
                return f"{self._of(['rank', 'dense_rank'])}() over ({by}order by {order})", replace(column, kind="int")
            return f"{self._over_all(kind, value)} over ({by}{f'order by {order}' if self._is(0.7) else ''})", column
        ordered = f"order by {', '.join(self._ordered(columns))}"
        if self._is(0.3):
            return f"row_number() over ({by}{ordered})", replace(column, kind="int")
        if self._is(0.5):
            return f"{self._of(['lag', 'lead'])}({value}{self._of(['', ', 2'])}) over ({by}{ordered})", column
        bounds = (
            self._of(["unbounded preceding", "2 preceding", "current row"]),
            self._of(["1 following", "current row"]),
        )
        frame = f"rows between {bounds[0]} and {self._of([bounds[1], 'unbounded following'])}"
        if self._is(0.3):
            function = f"{self._of(['first_value', 'last_value'])}({value}{self._of(['', ' ignore nulls'])})"
            return f"{function} over ({by}{ordered} {frame})", column
        return f"{self._over_all(kind, value)} over ({by}{ordered} {frame})", column

    def _over_all(self, kind: str, value: str) -> str:
        functions = {"int": ["count", "sum", "min", "max"], "decimal": ["sum", "min"]}.get(kind, ["min", "max"])
        return f"{self._of(functions)}({value})"

    def _where(self, columns: Columns, depth: int) -> str:
        conditions = [self._condition(columns, 2) for _ in range(self._chance.choice([0, 0, 1, 1, 2]))]
        if depth and self._is(0.25):
            conditions.append(self._with_query(columns))
        return f" where {' and '.join(f'({condition})' for condition in conditions)}" if conditions else ""

    # FROM

    def _from(self, depth: int) -> tuple[str, Columns]:
        source, columns = self._source(depth)
        for _ in range(self._chance.choice([0, 0, 0, 1, 1, 2])):
            source, columns = self._joined(source, columns, depth)
        return source, columns

    def _source(self, depth: int) -> tuple[str, Columns]:
        alias = self._name("t")
        if depth and self._is(0.2):
            text, columns = self._any(depth - 1)
            text += self._first(columns) if self._is(0.15) else ""
            return f"({text}) {alias}", [Column(f"{alias}.{column.name}", column.kind) for column in columns]
        return f"{self._of(self._tables)} {alias}", [Column(f"{alias}.{name}", kind) for name, kind in _KINDS.items()]

    def _joined(self, source: str, columns: Columns, depth: int) -> tuple[str, Columns]:
        other, more = self._source(depth)
        both = [*columns, *more]
        kind = self._of(["join"] * 4 + ["left join"] * 3 + ["right join", "full join"] * 2 + ["cross join"])
        kind = self._of(["left semi join", "left anti join"]) if self._is(0.15) else kind
        if kind == "cross join":
            return f"{source} cross join {other}", both
        conditions = [f"{one} = {two}" for one, two in self._pairs(columns, more)]
        if self._is(0.3):
            conditions.append(self._condition(both if self._is(0.5) else more, 1))
        text = f"{source} {kind} {other} on {' and '.join(conditions)}"
        return text, columns if kind.startswith("left ") and kind != "left join" else both

    def _pairs(self, columns: Columns, more: Columns) -> list[tuple[str, str]]:
        kinds = [kind for kind in ("int", "int", "text", "date") if any(column.kind == kind for column in more)]
        drawn = [self._of(kinds or ["int"]) for _ in range(self._chance.choice([1, 1, 1, 2]))]
        return [(self._column(kind, columns), self._column(kind, more)) for kind in drawn]

    # Groups

    def _grouped(self, source: str, columns: Columns, where: str, depth: int) -> tuple[str, Columns]:
        keys = [self._key(columns) for _ in range(self._chance.choice([0, 1, 1, 1, 2]))]
        listed = [*keys, *(self._aggregate(columns) for _ in range(self._chance.randrange(1, 4)))]
        text = f"select {self._as(listed)} from {source}{where}"
        if keys:
            names = list(dict.fromkeys(key for key, _ in keys))
            sets = self._of(["rollup", "cube"]) if self._is(0.1) else ""
            text += f" group by {sets}{'(' if sets else ''}{', '.join(names)}{')' if sets else ''}"
            # In DuckDB no rows have a total.
            text += " having count(*) > 0" if sets else ""
        if not text.endswith(" > 0") and self._is(0.2):
            aggregate, _ = self._aggregate(columns, "int")
            text += f" having {aggregate} {self._of(['>', '<=', '<>'])} {self._of(_LITERALS['int'])}"
        return text, [column for _, column in listed]

    def _key(self, columns: Columns) -> tuple[str, Column]:
        kind = self._of(["int", "int", "text", "date", "bool", "decimal"])
        text = self._column(kind, columns) if self._is(0.7) else self._value(kind, columns, 1)
        if not any(column.name in text for column in columns):
            column = self._of(columns)
            text, kind = column.name, column.kind
        return text, Column(self._name("g"), kind)

    def _aggregate(self, columns: Columns, kind: str | None = None) -> tuple[str, Column]:
        kind = kind or self._of(["int", "int", "decimal", "double", "text", "date"])
        value = self._value(kind, columns, 1)
        function = self._of(["min", "max"] if kind in ("text", "date") else ["sum", "sum", "min", "max"])
        text = f"{function}({value})"
        if kind == "int" and self._is(0.6):
            counted = self._value(self._of([*_LITERALS]), columns, 1)
            text = self._of(["count(*)", f"count({counted})", f"count(distinct {counted})"])
        elif kind == "double" and self._is(0.5):
            text = f"avg({self._value(self._of(['int', 'decimal', 'double']), columns, 1)})"
        elif kind in ("int", "decimal") and self._is(0.1):
            text = f"sum(distinct {value})"
        if self._is(0.15):
            text += f" filter (where {self._condition(columns, 1)})"
        return text, Column(self._name("v"), kind)

    # Queries in expressions, and sets

    def _with_query(self, columns: Columns) -> str:
        name, alias = self._of(self._tables), self._name("q")
        inner = [Column(f"{alias}.{column}", kind) for column, kind in _KINDS.items()]
        conditions = []
        is_correlated = self._is(0.5)
        if is_correlated:
            conditions += [f"{one} = {two}" for one, two in self._pairs(columns, inner)]
        if self._is(0.5):
            conditions.append(self._condition(inner, 1))
        if self._is(0.1):
            conditions.append(
                f"{self._column('int', inner)} {self._of(['<', '<>', '>='])} {self._column('int', columns)}"
            )
        where = f" where {' and '.join(conditions)}" if conditions else ""
        negated = "not " if self._is(0.4) else ""
        if self._is(0.4):
            return f"{negated}exists (select 1 from {name} {alias}{where})"
        if self._is(0.3):
            aggregate, _ = self._aggregate(inner, "int")
            operator = self._of(["<", "=", ">="])
            return f"{self._column('int', columns)} {operator} (select {aggregate} from {name} {alias}{where})"
        kind = self._of(["int", "text", "date"])
        value, item = self._column(kind, columns), self._column(kind, inner)
        return f"{value} {negated}in (select {item} from {name} {alias}{where})"

    def _scalar(self, columns: Columns) -> str:
        name, alias = self._of(self._tables), self._name("q")
        inner = [Column(f"{alias}.{column}", kind) for column, kind in _KINDS.items()]
        pairs = self._pairs(columns, inner) if self._is(0.7) else []
        where = f" where {' and '.join(f'{one} = {two}' for one, two in pairs)}" if pairs else ""
        return f"(select {self._aggregate(inner, 'int')[0]} from {name} {alias}{where})"

    def _set(self, depth: int) -> tuple[str, Columns]:
        operator = self._of(["union all", "union all", "union", "intersect", "except", "intersect all", "except all"])
        columns = [Column(self._name("u"), self._of([*_LITERALS])) for _ in range(self._chance.randrange(1, 3))]
        sides = []
        for _ in range(2):
            source, known = self._from(depth)
            listed = [
                (f"cast({self._value(column.kind, known, 1)} as {_TYPES[column.kind]})", column)
                if column.kind in _TYPES
                else (self._value(column.kind, known, 1), column)
                for column in columns
            ]
            sides.append(f"select {self._as(listed)} from {source}{self._where(known, 0)}")
        return f" {operator} ".join(sides), columns

    # Expressions

    def _column(self, kind: str, columns: Columns) -> str:
        """Return a column of a kind, else a constant."""
        named = [column.name for column in columns if column.kind == kind]
        return str(self._of(named or _LITERALS[kind]))

    def _value(self, kind: str, columns: Columns, depth: int) -> str:
        if depth == 0 or self._is(0.4):
            return self._of(_LITERALS[kind]) if self._is(0.15) else self._column(kind, columns)
        if self._is(0.2):
            return self._chosen(kind, columns, depth - 1)
        if kind == "bool":
            return self._condition(columns, depth - 1)
        one, two = (self._value(kind, columns, depth - 1) for _ in range(2))
        return str(self._of(getattr(self, f"_{kind}s")(one, two, columns, depth - 1)))

    def _chosen(self, kind: str, columns: Columns, depth: int) -> str:
        one, two = (self._value(kind, columns, depth) for _ in range(2))
        condition = self._condition(columns, depth)
        subject, case = self._column("int", columns), self._of(_LITERALS["int"])
        return str(
            self._of(
                [
                    f"coalesce({one}, {two})",
                    f"nullif({one}, {two})",
                    f"case when {condition} then {one} else {two} end",
                    f"case when {condition} then {one} end",
                    f"case {subject} when {case} then {one} else {two} end",
                    f"if({condition}, {one}, {two})",
                ]
            )
        )

    def _ints(self, one: str, two: str, columns: Columns, depth: int) -> list[str]:
        text, day = self._value("text", columns, depth), self._value("date", columns, depth)
        return [
            *(f"({one} {operator} {two})" for operator in "+-*"),
            f"({one} % {self._of(['2', '3'])})",
            f"-({one})",
            f"abs({one})",
            f"length({text})",
            f"year({day})",
            f"month({day})",
            f"extract(day from {day})",
            f"cast(cast({one} as string) as bigint)",
            f"greatest({one}, {two})",
        ]

    def _decimals(self, one: str, two: str, columns: Columns, depth: int) -> list[str]:
        number = self._value("int", columns, 0)
        return [
            f"({one} + {two})",
            f"({one} - {two})",
            f"(cast({one} as decimal(8,2)) * {self._of(['2', '0.5', '1.25'])})",
            f"({one} + {number})",
            f"-({one})",
            f"abs({one})",
            f"round({one}, 1)",
            f"cast({number} as decimal(12,1))",
            f"least({one}, {two})",
        ]

    def _doubles(self, one: str, two: str, columns: Columns, depth: int) -> list[str]:
        number = self._value("int", columns, depth)
        return [
            *(f"({one} {operator} {two})" for operator in "+-*"),
            f"({number} / {self._of(['2', '4'])})",
            f"cast({self._value('decimal', columns, depth)} as double)",
            f"({one} + {number})",
            f"-({one})",
        ]

    def _texts(self, one: str, two: str, columns: Columns, depth: int) -> list[str]:
        number = self._value("int", columns, depth)
        return [
            f"({one} || {two})",
            f"upper({one})",
            f"lower({one})",
            f"trim({one})",
            f"substring({one}, {self._of(['1', '2'])}, 2)",
            f"replace({one}, 'a', 'xy')",
            f"cast({number} as string)",
            f"cast({self._column('date', columns)} as string)",
        ]

    def _dates(self, one: str, two: str, columns: Columns, depth: int) -> list[str]:
        unit = self._of(["day", "month", "week"])
        return [
            f"cast({one} + interval '{self._of([1, 3])}' {unit} as date)",
            f"cast({one} - interval '1' {unit} as date)",
            f"greatest({one}, {two})",
            f"cast('2026-02-0{self._of([1, 7])}' as date)",
        ]

    def _condition(self, columns: Columns, depth: int) -> str:
        kind = self._of(["int", "decimal", "double", "text", "date"])
        one, two, three = (self._value(kind, columns, max(depth - 1, 0)) for _ in range(3))
        choices = [
            *([f"{one} {operator} {two}" for operator in ("=", "<>", "<", "<=", ">", ">=")]),
            f"{one} is {self._of(['', 'not '])}null",
            f"{one} {self._of(['', 'not '])}between {two} and {three}",
            f"{one} {self._of(['', 'not '])}in ({two}, {self._of(_LITERALS[kind])})",
            self._column("bool", columns),
        ]
        if kind == "text":
            choices.append(f"{one} {self._of(['', 'not '])}like {self._of(['%a%', 'B%', '_']).__repr__()}")
        if kind == "int":
            choices.append(f"{self._column('int', columns)} = {self._column('decimal', columns)}")
        if depth:
            left, right = (self._condition(columns, depth - 1) for _ in range(2))
            choices += [f"({left}) and ({right})", f"({left}) or ({right})", f"not ({left})"]
        return str(self._of(choices))
