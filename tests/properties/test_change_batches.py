"""Messages of changes at random: each has the same rows, or is as bad, alone and in a batch with others."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.tiers import nightly
from tests.unit.test_change_formats import canal, dms, maxwell
from tests.unit.test_debezium import ENCODED, PLACEHOLDER, POSTGRES, envelope
from volley.formats.change_options import ChangeOptions
from volley.formats.changes.decoder import ChangeValues
from volley.formats.rows import Sorted
from volley.types.arrow import arrow_schema

COLUMNS = {
    **{"a": "string", "b": "long", "c": "double", "d": "decimal(10,2)", "e": "timestamp_ntz", "f": "date"},
    **{"g": "array<int>", "h": "map<string, string>", "i": "binary", "j": "boolean", "k": "timestamp", "l": "uuid"},
    **{"m": "struct<a: int>", "n": "time", "o": "array<string>"},
}
WIRE = {"d": "text", "e": "MicroTimestamp", "n": "MicroTime"}
VALUES: list[Any] = [
    *(None, 1, -1, 1.5, True, "x", "", "1", PLACEHOLDER, ENCODED, "2026-03-29", "2026-03-29T01:30:00.123456Z"),
    *("infinity", 1774747800123456, [1, None], ["a"], [], {}, {"a": 1}, {"a": "b"}, [PLACEHOLDER], 2**63 - 1, 2**70),
    *(1e300, "NaN", "AeI6", "0000-00-00", {"scale": 1, "value": "MDk="}, [{"a": 1}], "é\U0001f600"),
]
MYSQL = {"connector": "mysql", "file": "a.1", "pos": 1, "row": 0}
OTHERS: list[Any] = [{"ts_ms": 1}, {"status": "BEGIN", "id": "1", "ts_ms": 1}, {"x": 1}, [], 5, None]


class Messages:
    """Makes messages of one table."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.columns = self.random.sample(list(COLUMNS), self.random.randint(1, 4))

    def row(self) -> dict[str, Any]:
        chosen = [name for name in self.columns if self.random.random() < 0.8]
        key = self.random.choice([1, 2, 3, 4, 5, 6, None, "x"])
        return {"id": key, **{name: self.random.choice(VALUES) for name in chosen}}

    def maybe(self) -> Any:
        return self.random.choice([None, self.row(), self.row()])

    def texts(self) -> Any:
        row = self.row().items()
        return {name: value if isinstance(value, str | None) else json.dumps(value) for name, value in row}

    def debezium(self) -> Any:
        place = self.random.choice([POSTGRES, MYSQL, None])
        message = envelope(self.random.choice("crudtmx"), self.maybe(), self.maybe(), place)
        return self.random.choice(OTHERS) if self.random.random() < 0.1 else message

    def flattened(self) -> Any:
        told = [{}, {"__op": "c"}, {"__op": "d"}, {"__deleted": "true"}, {"__op": "x"}]
        return {**self.row(), **self.random.choice(told)}

    def maxwell(self) -> Any:
        kind = self.random.choice(["insert", "update", "delete", "bootstrap-insert", "x", "table-create"])
        return maxwell(kind, self.maybe(), old=self.maybe())

    def canal(self) -> Any:
        rows = [self.texts() for _ in range(self.random.randrange(3))]
        kind = self.random.choice(["INSERT", "UPDATE", "DELETE", "ALTER", "TRUNCATE"])
        return canal(kind, self.random.choice([None, rows]), self.random.choice([None, [self.texts()]]))

    def dms(self) -> Any:
        kind = self.random.choice(["load", "insert", "update", "delete", "x"])
        return {**dms(kind, self.maybe()), "before-image": self.maybe()}

    def airbyte(self) -> Any:
        return {"_airbyte_data": self.random.choice([None, self.row(), {**self.row(), "_ab_cdc_deleted_at": "2020"}])}

    def olake(self) -> Any:
        return {**self.row(), "_op_type": self.random.choice(["c", "u", "d", "r", "z", None])}


def outcomes(read: Sorted) -> dict[int, list[str]]:
    """Return the rows of each message, or that it is bad."""
    found = {number: ["bad"] for number in read.faults}
    for number, row in zip(read.numbers, read.batch.to_pylist() if read.numbers else [], strict=True):
        found.setdefault(number, []).append(repr(row))
    return found


def check(seed: int, name: str) -> None:
    made, value_format = Messages(seed), "debezium" if name == "flattened" else name
    make: Callable[[], Any] = getattr(made, name)
    values = [json.dumps(make()).encode() for _ in range(made.random.randint(1, 8))]
    schema = arrow_schema(", ".join(["id long", *(f"{column} {COLUMNS[column]}" for column in made.columns)]))
    wire = {column: WIRE[column] for column in made.columns if column in WIRE and value_format == "debezium"}
    options = ChangeOptions(
        key_fields=["id"] * (seed % 2),
        wire=wire,
        unrepresentable="null" if seed % 3 else "fail",
        flattened=name == "flattened",
    )
    decoder = ChangeValues(schema, value_format, options, ("warn", "fail", "drop")[seed % 3])
    alone = {
        number: outcome for number, value in enumerate(values) for outcome in outcomes(decoder.sort([value])).values()
    }
    assert outcomes(decoder.sort(values)) == alone


@pytest.mark.parametrize("name", ["debezium", "flattened", "maxwell", "canal", "dms", "airbyte", "olake"])
@pytest.mark.parametrize("block", [0, *map(nightly, range(1, 20))])
def test_a_message_has_its_rows_whatever_stands_beside_it(block: int, name: str) -> None:
    for seed in range(block * 10, block * 10 + 10):
        check(seed, name)
