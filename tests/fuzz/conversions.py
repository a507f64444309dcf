"""Texts that are nearly values of a type, read as that type: each becomes the value, a bad row or a VolleyError.

A native parser may end the process by a signal, so each seed runs in a child process. What is printed is the seed and
the number of the case, never the text. ``python -m tests.fuzz.conversions`` runs a minute; others call `fuzz`.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pyarrow as pa

from volley import FileSource, SourceContext, VolleyError
from volley.columns.casts import cast, try_cast
from volley.columns.exact import array_of
from volley.connectors.files.listing import LoggedFile
from volley.contracts.rows import BadRow
from volley.formats.messages import JsonValues
from volley.types.arrow import arrow_type

__all__ = ["fuzz"]

CASES = 60
_ROWS = 20
_TYPES = [
    *("boolean", "int", "long", "float", "double", "string", "binary", "date", "time", "timestamp", "timestamp_ntz"),
    *("uuid", "decimal(1,0)", "decimal(10,2)", "decimal(38,0)", "decimal(38,38)", "decimal(20,10)"),
]
_NOT_IN_FILES = ("uuid", "binary")
_PIECES = [
    *(
        "0",
        "1",
        "9",
        "00",
        "123",
        "99999999999999999999",
        "0" * 50,
        "7" * 80,
        ".",
        "-",
        "+",
        "e",
        "E",
        "e-",
        "e+",
        "e-05",
    ),
    *(
        "e38",
        "e39",
        "e-38",
        "e-39",
        "e400",
        "e-400",
        "inf",
        "nan",
        "true",
        "f",
        " ",
        "\t",
        "x",
        "_",
        ",",
        "0x",
        "é",
        "\u0663",
    ),
    *(
        "1970-01-01",
        "2024-02-30",
        "9999-12-31",
        "-0001-01-01",
        "T",
        "10:30",
        ":59",
        ":60",
        ".123456",
        ".123456789",
        "Z",
    ),
    *("+00:00", "-23:59", "+99:99", "12345678-1234-1234-1234-123456789abc", "{", "}", "\u0000", "\ud83d", "ffffffff"),
]


def fuzz(seconds: float, seed: int | None = None) -> list[str]:
    """Convert texts until the time is over, each seed in a child process.

    Args:
        seconds: When to begin no more.
        seed: The first seed; None = another one each time.

    Returns:
        A line for each failure, with its seed and case; empty if all went well.
    """
    seed = random.randrange(1_000_000) if seed is None else seed
    print(f"conversions: seed {seed}", flush=True)
    failures: list[str] = []
    deadline = time.monotonic() + seconds
    while True:
        failures += run(seed)
        seed += 1
        if time.monotonic() >= deadline:
            return failures


def run(seed: int, cases: int = CASES) -> list[str]:
    """Run the cases of one seed in a child process, and return its failures."""
    command = [sys.executable, "-m", "tests.fuzz.conversions", str(seed), str(cases)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = ended.stdout.splitlines()
    failures = [line for line in lines if not line.startswith("case ")]
    if ended.returncode < 0:
        failures.append(f"seed {seed}, {lines[-1] if lines else 'case 0'}: ended by signal {-ended.returncode}")
    elif ended.returncode:
        failures.append(f"seed {seed}, {lines[-1]}: {ended.stderr.strip().splitlines()[-1][:200]}")
    return failures


def _cases(seed: int, cases: int) -> Iterator[str]:
    """Run the cases of a seed in this process; yield the failures."""
    for case in range(cases):
        print(f"case {case}", flush=True)
        chosen = random.Random(f"{seed} {case}")
        type_name, texts = chosen.choice(_TYPES), [_text(chosen) for _ in range(_ROWS)]
        way = chosen.choice(_WAYS)
        for text, value in way(texts, type_name):
            if type_name.startswith("decimal") and value is not None and value != _decimal(text):
                yield f"seed {seed}, case {case}: a wrong {type_name} by {way.__name__}"


def _text(chosen: random.Random) -> str:
    if chosen.random() < 0.3:
        exponent = chosen.getrandbits(chosen.randrange(1, 100))
        digits = "".join(chosen.choices("0123456789.", k=chosen.choice([1, 3, 20, 60])))
        return f"{chosen.choice(['', '-', '+'])}{digits}{chosen.choice('eE')}{chosen.choice(['-', '+', ''])}{exponent}"
    return "".join(chosen.choices(_PIECES, k=chosen.randint(1, 5)))


def _decimal(text: str) -> Decimal | None:
    # As Spark does: the space and the control characters around a number are no part of it.
    text = text.strip("".join(map(chr, [*range(33), 127])))
    with suppress(InvalidOperation):
        return Decimal(text)
    # Python has no exponents of more than 18 digits, not even of zero.
    with suppress(InvalidOperation):
        return zero if not (zero := Decimal(re.split("[eE]", text)[0])) else None
    return None


Pairs = Iterator[tuple[str, Any]]


def _csv(texts: Sequence[str], type_name: str) -> Pairs:
    lines = "".join(f'{number},"{text.replace(chr(34), "")}"\n' for number, text in enumerate(texts))
    return _file("csv", f"id,x\n{lines}", texts, type_name)


def _json(texts: Sequence[str], type_name: str) -> Pairs:
    return _file("json", "".join(f"{line}\n" for line in _objects(texts)), texts, type_name)


def _objects(texts: Sequence[str]) -> list[str]:
    """Return an object for each text, which every second one has without quotes."""
    values = (text if number % 2 else json.dumps(text) for number, text in enumerate(texts))
    return [f'{{"id":{number},"x":{value}}}'.replace("\n", " ") for number, value in enumerate(values)]


def _file(ending: str, content: str, texts: Sequence[str], type_name: str) -> Pairs:
    if type_name in _NOT_IN_FILES:
        return
    with tempfile.TemporaryDirectory(prefix="volley-fuzz-") as folder:
        file = Path(folder, f"1.{ending}")
        file.write_bytes(content.encode(errors="surrogatepass"))
        reader = FileSource(file, schema=f"id long, x {type_name}").open(SourceContext(f"{folder}/state"))
        split = [(LoggedFile(str(file), file.stat().st_size), (0, 1))]
        for rows in reader.read_tolerant(split):
            if not isinstance(rows, BadRow):
                yield from _pairs(rows.batch, texts)
        with suppress(VolleyError):
            list(reader.read(split))


def _pairs(batch: pa.RecordBatch, texts: Sequence[str]) -> Pairs:
    if pa.types.is_decimal(batch.schema.field("x").type):
        numbers, values = batch["id"].to_pylist(), batch["x"].to_pylist()
        yield from (
            (texts[number], value) for number, value in zip(numbers, values, strict=True) if number in range(_ROWS)
        )


def _messages(texts: Sequence[str], type_name: str) -> Pairs:
    if type_name in _NOT_IN_FILES:
        return
    schema = pa.schema([("id", pa.int64()), ("x", arrow_type(type_name))])
    for mode in ("ignore", "keep", "fail"):
        decoder = JsonValues(schema, mode)
        for value in _objects(texts):
            try:
                yield from _pairs(decoder.decode([value.encode(errors="surrogatepass")]), texts)
            except (VolleyError, pa.ArrowInvalid) as error:
                decoder.fault(value.encode(errors="surrogatepass"), error)


def _casts(texts: Sequence[str], type_name: str) -> Pairs:
    valid = [text.encode(errors="replace").decode() for text in texts]
    target = arrow_type(type_name)
    values = try_cast(pa.array(valid), target)
    for text in valid:
        with suppress(VolleyError):
            cast(pa.scalar(text), target)
    if pa.types.is_decimal(target):
        yield from zip(valid, values.to_pylist(), strict=True)


def _python(texts: Sequence[str], type_name: str) -> Pairs:
    target = arrow_type(type_name)
    for text in texts:
        if pa.types.is_decimal(target) and (number := _decimal(text)) is not None and number.is_finite():
            with suppress(pa.ArrowInvalid):
                yield text, array_of([number], target)[0].as_py()
            with suppress(pa.ArrowInvalid):
                array_of([[{"x": number}]], pa.list_(pa.struct([("x", target)])))


_WAYS: list[Callable[[Sequence[str], str], Pairs]] = [_csv, _json, _messages, _casts, _python]


def main(arguments: Sequence[str]) -> None:
    """Run one seed in this process, or seeds in children for a minute."""
    if not arguments:
        sys.exit("\n".join(fuzz(60)) or 0)
    for failure in _cases(int(arguments[0]), int(arguments[1])):
        print(failure, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
