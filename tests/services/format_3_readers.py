"""Which tables of format version 3 other engines read: makes the table in docs/how-to/format-3.md.

``python -m tests.services.format_3_readers`` tries them and writes it; ``test_format_3_readers.py`` tries them again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from trino.exceptions import TrinoQueryError

from tests.duck import query
from tests.processes import ROOT
from tests.servers.iceberg_spark import IcebergSpark
from tests.servers.trino import Trino, of_files
from tests.services.format_3_rows import OF_ROWS, Case
from tests.services.format_3_tables import CASES
from tests.services.readers import Lake, spark_sql
from volley.iceberg import IcebergTable

__all__ = ["on_page", "table"]

PAGE = ROOT / "docs" / "how-to" / "format-3.md"
BEGIN = "<!-- readers: written by python -m tests.services.format_3_readers, checked by its test -->\n"
END = "<!-- end of readers -->\n"

_IDS = ("_row_id", "_last_updated_sequence_number")

Read = Callable[[Lake, str, Sequence[str]], list[tuple[Any, ...]]]


# --- readers


def _by_volley(lake: Lake, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    rows = IcebergTable(lake.config(name).ref).rows
    if _IDS[0] in columns:
        rows = rows.include("row_id", "last_updated_sequence_number")
    return _tuples(rows.to_arrow().select(list(columns)))


def _by_spark(lake: Lake, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    (rows,) = spark_sql(lake, f"select {', '.join(columns)} from volley.db.{name}")
    return [tuple(row.values()) for row in rows]


def _by_duckdb(lake: Lake, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    scanned = f"iceberg_scan('{lake.config(name).ref.load().metadata_location}')"
    rows: list[tuple[Any, ...]] = query(f"select {', '.join(columns)} from {scanned}").fetchall()
    return rows


def _by_pyiceberg(lake: Lake, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return _tuples(lake.table(name).scan(selected_fields=tuple(columns)).to_arrow().select(list(columns)))


def _by_trino(trino: Trino, lake: Lake, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return trino.query(f"select {', '.join(columns)} from lake.db.{name}")


def _tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    # Python's own times have no nanoseconds.
    plain = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in rows.columns]
    return list(zip(*(column.to_pylist() for column in plain), strict=True))


def _readers(trino: Trino) -> dict[str, Read]:
    return {
        "Volley": _by_volley,
        "Spark 4.1.4, Iceberg 1.12.0": _by_spark,
        "DuckDB 1.5.5": _by_duckdb,
        "pyiceberg 0.12.0": _by_pyiceberg,
        "Trino 476": partial(_by_trino, trino),
    }


def _outcome(reader: str, read: Read, lake: Lake, name: str, case: Case) -> str:
    """Return in a word what a reader makes of a table."""
    try:
        rows = read(lake, name, ["id", case.by.get(reader, "value")])
    except Exception:
        return "other columns" if _reads_another_column(read, lake, name, case) else "no"
    values = {key: case.shown(value) for key, value in rows}
    return "yes" if values == case.rows and len(rows) == len(values) else "**wrong**"


def _reads_another_column(read: Read, lake: Lake, name: str, case: Case) -> bool:
    try:
        return sorted(read(lake, name, ["id"])) == [(key,) for key in sorted(case.rows)]
    except Exception:
        return False


def _shows_ids(read: Read, lake: Lake, names: Sequence[str]) -> str:
    """Return in a word whether a reader shows the ids and numbers that Volley does."""
    columns = ["id", *_IDS]
    try:
        rows = [sorted(read(lake, name, columns)) for name in names]
    except Exception:
        return "no"
    return "yes" if rows == [sorted(_by_volley(lake, name, columns)) for name in names] else "**wrong**"


def table(lake: Lake, trino: Trino) -> str:
    """Make the tables, read them by all readers, and return the table for the page."""
    lake.catalog().create_namespace_if_not_exists("db")
    trino.query("create schema lake.db")
    readers, names = _readers(trino), {case.name: f"t{number}" for number, case in enumerate(CASES)}
    lines = [["", *readers], ["---"] * (1 + len(readers))]
    for case in CASES:
        name = names[case.name]
        case.fill(lake, name)
        # Trino, as Spark, tries for a minute and a half to read metadata that it refuses.
        with suppress(TrinoQueryError):
            trino.register(name, lake.config(name).ref.load())
        lines.append([case.name, *(_outcome(reader, read, lake, name, case) for reader, read in readers.items())])
    of_rows = [names[case.name] for case in OF_ROWS]
    ids = [_shows_ids(read, lake, of_rows) for read in readers.values()]
    lines.insert(2 + len(OF_ROWS), ["ids of these rows, and numbers of their last changes", *ids])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# --- the page


def on_page() -> str:
    """Return the table that stands on the page."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def _write() -> None:
    with TemporaryDirectory() as name:
        lake, metastore = (Path(name) / folder for folder in ("lake", "trino"))
        lake.mkdir()
        metastore.mkdir()
        spark, trino = IcebergSpark(lake.parent), Trino(metastore, of_files(metastore))
        try:
            found = table(Lake(lake, spark.start()), trino.start())
        finally:
            spark.stop()
            trino.stop()
    text = PAGE.read_text()
    PAGE.write_text(text.replace(BEGIN + on_page() + END, BEGIN + found + END))


if __name__ == "__main__":
    _write()
