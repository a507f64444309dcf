"""Files and messages of which many rows are bad: what finding them costs, as an attacker would choose it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.benchmark import Run, benchmark
from volley import FileSource, SourceContext
from volley.contracts.rows import BadRow

_SCHEMA = "id long, name string, at timestamp, price double"
_KINDS: dict[str, tuple[Callable[[int], str], Callable[[int], str]]] = {
    "json": (
        lambda row: f'{{"id": {row}, "name": "name {row}", "at": "2024-01-01T00:00:00Z", "price": {row}.25}}',
        lambda row: f'{{"id": "x{row}", "name": "name {row}", "at": "2024-01-01T00:00:00Z", "price": {row}.25}}',
    ),
    "pretty-printed json": (lambda row: f'  "id": {row},', lambda row: "{"),
    "csv": (
        lambda row: f"{row},name {row},2024-01-01T00:00:00Z,{row}.25",
        lambda row: f"x{row},name {row},2024-01-01T00:00:00Z,{row}.25",
    ),
}
"""A good and a bad row of each format; pretty-printed, all are bad."""


@benchmark(rows=100_000, case="rows", options={"one_in": (1, 2, 100)}, figures=("cpu_us_a_row",))
def bad_rows(run: Run) -> None:
    """Files of which one row in 1, 2 or 100 is bad, and a pretty-printed one: CPU µs a row to read them."""
    for kind, (good, bad) in _KINDS.items():
        for one_in in run.options["one_in"]:
            lines = (bad(row) if row % one_in == 0 else good(row) for row in range(run.rows))
            path = run.folder / f"{len(kind)}-{one_in}.{kind.rpartition(' ')[2]}"
            path.write_text("\n".join([*(["id,name,at,price"] if kind == "csv" else []), *lines, ""]))
            if not run.results:
                # The first pass imports what reads files.
                _read(path, run.rows)
            run.measure(partial(_read, path, run.rows), case=f"{kind}, 1 in {one_in} bad")


def _read(path: Path, rows: int) -> None:
    reader = FileSource(path, schema=_SCHEMA).open(SourceContext(f"{path}-state"))
    start = reader.initial_offset()
    splits = reader.splits(start, reader.latest_offset(start, None, None))
    items = (item for split in splits for item in reader.read_tolerant(split))
    count = sum(1 if isinstance(item, BadRow) else item.batch.num_rows for item in items)
    assert count == rows, f"{count} rows, not {rows}"
