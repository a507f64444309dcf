"""Random queries have the rows of DuckDB: over tables, over streams in random epochs, as views of random changes."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sql.random_queries import SCHEMA, Draw, in_duckdb, random_rows
from tests.sql.rows import counted
from tests.views.tables import Known
from volley import Environment, FileSource, IcebergSinkConfig, IcebergTable, MaterializedView, VolleyError

NAMES = ["a", "b", "c"]
QUERIES = 10
"""How many a seed has."""
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 200))]
LATENESS = 20


def drawn(seed: int) -> tuple[random.Random, list[str]]:
    chance = random.Random(seed)
    return chance, [Draw(chance, NAMES).query() for _ in range(QUERIES)]


def expected(text: str, tables: Mapping[str, pa.Table]) -> pa.Table | None:
    """Return the rows of DuckDB; None if it stumbles over itself."""
    with duckdb.connect() as connection, suppress(duckdb.InternalException, duckdb.ConversionException):
        connection.execute("set default_null_order = 'nulls_first_on_asc_last_on_desc'")
        connection.execute("set timezone = 'UTC'")
        for name, rows in tables.items():
            connection.register(name, rows)
        return connection.sql(in_duckdb(text)).to_arrow_table()
    return None


def named(text: str) -> list[str]:
    return [name for name in NAMES if re.search(rf"(from|join) {name} ", text)]


def equal_or_refused(text: str, rows: pa.Table | None, found: Callable[..., pa.Table], *arguments: Any) -> bool:
    """Return True if a query has these rows, False if it is refused."""
    try:
        result = found(*arguments)
    except VolleyError:
        return False
    if rows is not None:
        assert result.column_names == rows.column_names, text
        assert counted(result) == counted(rows), text
    return True


def selected(text: str, sources: Mapping[str, Any]) -> pa.Table:
    return Environment().sql(text, lateness=LATENESS, ttl="1d", **sources).to_arrow()


def refreshed(view: MaterializedView) -> pa.Table:
    view.refresh()
    return Environment().from_source(view.to_source()).to_arrow()


@pytest.mark.parametrize("seed", SEEDS)
def test_over_tables(seed: int) -> None:
    chance, texts = drawn(seed)
    done = Counter[bool]()
    for text in texts:
        tables = {name: pa.Table.from_pylist(random_rows(chance), SCHEMA) for name in NAMES}
        sources = {name: tables[name] for name in named(text)}
        done[equal_or_refused(text, expected(text, tables), selected, text, sources)] += 1
    assert seed or done[True] >= QUERIES // 3


@pytest.mark.parametrize("seed", SEEDS)
def test_over_streams(seed: int, tmp_path: Path) -> None:
    chance, texts = drawn(seed)
    done = Counter[bool]()
    for number, text in enumerate(texts):
        tables = {name: pa.Table.from_pylist(random_rows(chance, 30), SCHEMA) for name in NAMES}
        streams = {name: stream(chance, tables[name], tmp_path / f"{number}-{name}") for name in named(text)}
        # One of them is a stream, and others are at times.
        sources = {name: source if chance.random() < 0.5 else tables[name] for name, source in streams.items()}
        sources |= dict(chance.sample([*streams.items()], 1))
        done[equal_or_refused(text, expected(text, tables), selected, text, sources)] += 1
    assert seed or done[True]


def stream(chance: random.Random, rows: pa.Table, folder: Path) -> FileSource:
    """Return a stream without an end, whose rows fall into random epochs."""
    folder.mkdir()
    places = sorted({0, len(rows), *(chance.randrange(len(rows) + 1) for _ in range(3))})
    for number, (first, end) in enumerate(pairwise(places) if len(places) > 1 else [(0, 0)]):
        pq.write_table(rows.slice(first, end - first), folder / f"{number}.parquet")
    return FileSource(str(folder), format="parquet", bounded=False)


@pytest.mark.parametrize("seed", SEEDS)
def test_as_views(seed: int, tmp_path: Path) -> None:
    chance, texts = drawn(seed)
    tables = {name: Known(tmp_path / name, SCHEMA) for name in NAMES}
    for table in tables.values():
        table.change(random_rows(chance))
    views = {}
    for number, text in enumerate(texts):
        sources = {name: IcebergTable(tables[name].files.ref) for name in named(text)}
        ref = tables["a"].files.ref.beside(f"view_{number}")
        with suppress(VolleyError):
            views[text] = MaterializedView(
                f"view_{number}", sql=text, sources=sources, into=IcebergSinkConfig.from_table(ref), mode="incremental"
            )
    done = dict.fromkeys(views, True)
    for number in range(3):
        rows_of_tables = {name: table.arrow for name, table in tables.items()}
        for text, view in views.items():
            if done[text]:
                rows = expected(text, rows_of_tables)
                done[text] = equal_or_refused(text, rows, refreshed, view)
        for table in tables.values():
            gone = {place for place in range(len(table.rows)) if chance.random() < 0.3}
            table.change(random_rows(chance, 6, first=100 * number), gone)
    assert seed or sum(done.values()) >= QUERIES // 3
