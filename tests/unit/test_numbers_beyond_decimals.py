"""Numbers that no decimal holds are bad rows, named as others are, wherever a text or Decimal becomes a decimal.

pyarrow's own conversion ends the process for some of them; these tests use numbers that it survives.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from volley import FileSource, MemorySource, SourceContext, SourceError
from volley.columns.casts import try_cast
from volley.columns.decimals import decimals_of, in_scale, plain
from volley.connectors.files.listing import LoggedFile
from volley.contracts.rows import BadRow
from volley.formats import json_checks
from volley.formats.json import fault, parsed
from volley.formats.messages import JsonValues

MONEY = pa.decimal128(10, 2)


def read(path: Path, schema: str) -> tuple[list[dict[str, Any]], list[BadRow]]:
    """The rows of a file, and those that are bad."""
    reader = FileSource(path, schema=schema).open(SourceContext(f"{path.parent}/state"))
    rows: list[dict[str, Any]] = []
    bad: list[BadRow] = []
    for item in reader.read_tolerant([(LoggedFile(str(path), path.stat().st_size), (0, 1))]):
        bad += [item] if isinstance(item, BadRow) else []
        rows += [] if isinstance(item, BadRow) else item.batch.to_pylist()
    return rows, bad


def test_that_a_file_of_json_has_them_as_bad_rows(tmp_path: Path) -> None:
    lines = ["1.25", "1e-400", "1e40", '"2.5"', '"-1E-0039"', "1e1", "5e-1"]
    (tmp_path / "a.json").write_text("".join(f'{{"x": {value}, "y": {{"z": [1e-300]}}}}\n' for value in lines))
    rows, bad = read(tmp_path / "a.json", "x decimal(10,2), y struct<z: array<double>>")
    assert [row["x"] for row in rows] == [Decimal("1.25"), Decimal("2.5"), 10, Decimal("0.5")]
    assert {row["y"]["z"][0] for row in rows} == {1e-300}
    assert [row.error for row in bad] == [
        f"column 'x': {number} is no decimal(10,2)" for number in ("1e-400", "1e40", "-1E-0039")
    ]


def test_that_a_file_of_csv_has_them_as_bad_rows(tmp_path: Path) -> None:
    lines = ["1.25", "1e-400", "1e400", "0e-400", "1" + "0" * 100, "2." + "0" * 100, "-25e-1"]
    (tmp_path / "a.csv").write_text("x\n" + "".join(f"{line}\n" for line in lines))
    rows, bad = read(tmp_path / "a.csv", "x decimal(10,2)")
    assert [row["x"] for row in rows] == [Decimal("1.25"), 0, 2, Decimal("-2.5")]
    assert [row.payload.strip() for row in bad] == ["1e-400", "1e400", "1" + "0" * 100]
    assert bad[0].error == "column 'x': '1e-400' is no decimal(10,2)"


@pytest.mark.parametrize("text", ['{"x": 1e-400}', '{"x": "1e-400"}', r'{"x": "1\u0065-400"}', '{"x": 1, "x": 0E400}'])
def test_that_a_message_is_refused_however_the_number_is_written(text: str) -> None:
    decoder = JsonValues(pa.schema([("x", MONEY)]), "ignore")
    with pytest.raises(SourceError, match=r"column 'x': (1e-400|0E400) is no decimal\(10,2\)"):
        decoder.decode([b'{"x": 1}', text.encode()])


@pytest.mark.parametrize("text", ['{"id": "1e-400", "x": 1}', '{"id": "12e45-6", "x": 1}', '{"y": 1e-307, "x": 1}'])
def test_that_other_columns_may_have_such_texts(text: str) -> None:
    schema = pa.schema([("id", pa.string()), ("x", MONEY), ("y", pa.float64())])
    assert parsed(text.encode(), schema)[0]["x"].to_pylist() == [1]


def test_that_the_bound_of_exponents_is_what_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("rows", pa.list_(pa.struct([("x", MONEY)])))])
    line = b'{"rows": [{"x": 1}, {"x": 10e-011}]}'
    monkeypatch.setattr(json_checks, "_LARGEST", 11)
    assert "requires scale" in str(fault([line], schema))
    monkeypatch.setattr(json_checks, "_LARGEST", 10)
    assert fault([line], schema) == "column 'rows': 10e-011 is no decimal(10,2)"


@pytest.mark.parametrize("place", [0, 1 << 17, (1 << 17) - 1, (1 << 17) - 9])
def test_that_a_large_exponent_is_seen_wherever_it_stands(place: int) -> None:
    rows = b" " * place + b'{"x":1e-400}' + b" " * 1000
    with pytest.raises(SourceError, match="1e-400"):
        parsed(rows, pa.schema([("x", MONEY)]))


def test_casts_of_texts() -> None:
    texts = pa.array(["1.5", "1e-400", "1e400", "0" * 400 + "2", "9" * 400])
    assert try_cast(texts, MONEY).to_pylist() == [Decimal("1.5"), None, None, 2, None]
    assert decimals_of(texts.slice(3, 1), MONEY).to_pylist() == [2]
    with pytest.raises(pa.ArrowInvalid, match="'1e-400' is no decimal"):
        decimals_of(texts.slice(0, 2), MONEY)


@pytest.mark.parametrize("nest", [lambda x: x, lambda x: [x], lambda x: {"a": x}, lambda x: [("a", x)]])
def test_that_decimals_of_rows_are_checked(nest: Callable[[Any], Any]) -> None:
    types = {"Decimal": "decimal(10,2)", "list": "array<decimal(10,2)>", "dict": "struct<a: decimal(10,2)>"}
    name = types[type(nest(Decimal(1))).__name__] if nest(0) != [("a", 0)] else "map<string, decimal(10,2)>"
    for number in (Decimal("1e-400"), Decimal("1e400"), Decimal("1.001"), Decimal("Infinity")):
        source = MemorySource([{"x": nest(Decimal("1.5"))}, {"x": nest(number)}], schema=f"x {name}")
        with pytest.raises(SourceError, match=re.escape(f"{number} is no decimal(10,2)")):
            source.open(SourceContext("none"))


def test_that_zeros_need_no_place() -> None:
    long = Decimal("1" + "0" * 400 + "e-400")
    assert in_scale([long, Decimal("0e-400"), None, 7], MONEY) == [1, 0, None, 7]
    assert [plain(text) for text in ("0.0010e2", "-0e999", "+12e3", "1" + "0" * 39, ".", "1e" + "9" * 50)] == [
        *("0.1", "0", "+12000", None, None, None)
    ]
