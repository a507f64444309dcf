"""Source tables whose rows are known, and views that are compared with what DuckDB computes from these rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from tests.duck import query
from tests.iceberg.tables import Files
from volley import DataStream, Environment, MaterializedView, ViewRefresh
from volley.iceberg import IcebergSinkConfig, IcebergSource, IcebergSourceConfig, IcebergTable
from volley.iceberg.maintain.rewrites import format_of
from volley.iceberg.write.vectors import write_deletes

__all__ = ["Known", "Query", "checked", "same", "view_of"]

Row = dict[str, Any]


class Known:
    """A table whose live rows are known, changed as other engines would.

    Args:
        folder: The lake's folder; each table has one of its own in it.
        schema: Its schema.
        version: Its format version; from 3 on rows have ids, and deletes are vectors.
    """

    def __init__(self, folder: Path, schema: pa.Schema | Schema, version: int = 2) -> None:
        self.files = Files(folder, schema)
        self._version = version
        if version > 2:
            IcebergTable(self.files.ref).upgrade(version)
            self.files.table.refresh()
        self.schema = schema
        self._places: list[tuple[Row, DataFile, int]] = []
        self._deleted: list[tuple[DataFile, int]] = []

    @property
    def rows(self) -> list[Row]:
        """The live rows."""
        return [row for row, _, _ in self._places]

    @property
    def arrow(self) -> pa.Table:
        """The live rows."""
        return pa.Table.from_pylist(self.rows, schema=self.schema)

    @property
    def stream(self) -> DataStream:
        """A stream of the table."""
        return Environment().from_source(IcebergSource(IcebergSourceConfig(self.files.ref)))

    def change(self, added: Sequence[Row] = (), removed: Iterable[int] = ()) -> None:
        """Add rows, and delete some by their numbers among the live ones, in one snapshot."""
        gone = {*removed}
        deletes = [(file, place) for number, (_, file, place) in enumerate(self._places) if number in gone]
        self._places = [place for number, place in enumerate(self._places) if number not in gone]
        files = [self._file(added)] if added else []
        self.files.commit(files, self._deletes(deletes) if deletes else ())

    def rewrite(self) -> None:
        """Write all live rows to one new file, in another order, as an overwrite that copies rows."""
        rows, old = self.rows[::-1], {id(file): file for _, file, _ in self._places}
        self._places = []
        if old:
            self.files.commit([self._file(rows)], removed=list(old.values()))

    def _deletes(self, deleted: Sequence[tuple[DataFile, int]]) -> list[DataFile]:
        if self._version == 2:
            return [self.files.positions(*deleted)]
        # A vector has all deletes of its file, the earlier ones too.
        self._deleted += deleted
        changed = {id(file): file for file, _ in deleted}.values()
        vectors = [
            (file, np.sort([place for other, place in self._deleted if other is file]).astype(np.uint64))
            for file in changed
        ]
        written = write_deletes(format_of(self.files.table, self.files.ref), vectors)
        return [file.data_file for file in written]

    def _file(self, rows: Sequence[Row]) -> DataFile:
        file = self.files.data(rows)
        self._places += [(row, file, place) for place, row in enumerate(rows)]
        return file


@dataclass(frozen=True)
class Query:
    """A view's query, in Volley's words and in SQL.

    Args:
        stream: Builds it from the streams of the sources.
        sql: The same over tables of the sources' names.
    """

    stream: Callable[..., DataStream]
    sql: str


def view_of(query: Query, sources: Mapping[str, Known], **options: Any) -> MaterializedView:
    """A view of the sources, beside the first of them."""
    first = next(iter(sources.values()))
    streams = {name: source.stream for name, source in sources.items()}
    into = IcebergSinkConfig.from_table(first.files.ref.beside("view"))
    return MaterializedView("view", query.stream(**streams), into, **options)


def checked(view: MaterializedView, query_: Query, sources: Mapping[str, Known], mode: Any = None) -> ViewRefresh:
    """Refresh a view, and compare its rows, as DuckDB reads them, with DuckDB's own result."""
    done = view.refresh(mode)
    same(view, query_, sources)
    return done


def same(view: MaterializedView, query_: Query, sources: Mapping[str, Known]) -> None:
    """Compare a view's rows with DuckDB's result over its sources' rows."""
    expected = query(query_.sql, **{name: source.arrow for name, source in sources.items()}).to_arrow_table()
    columns = ", ".join(f'"{name}"' for name in expected.column_names)
    metadata = view.into.ref.load().metadata_location
    found = query(f"select {columns} from iceberg_scan('{metadata}')").to_arrow_table()
    assert _bag(found) == _bag(expected)


def _bag(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(map(_plain, row.values())) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    """Values that are equal although DuckDB's sums have other types; NaN as a text, as it is not equal to itself.

    Nested ones can be hashed.
    """
    if isinstance(value, dict):
        return tuple((name, _plain(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if isinstance(value, Decimal):
        return Decimal(value).normalize() + 0
    return value
