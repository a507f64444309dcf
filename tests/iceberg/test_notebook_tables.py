"""What a notebook shows of a table: as pyiceberg has written it, with its figures, columns, rows and snapshots."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from volley import IcebergStorage, IcebergTable, TableRef


def cells(shown: str) -> list[str]:
    return re.findall(r"<t[hd]>([^<]*)", shown)


def test_a_table_shows_figures_columns_rows_and_snapshots(tmp_path: Path) -> None:
    ref = TableRef("db", "t", IcebergStorage.Local(str(tmp_path)))
    catalog = ref.load_catalog()
    catalog.create_namespace("db")
    first = pa.table({"id": [1, 2, 3], "<text>": ["<i>a</i>", None, "c"]})
    table = catalog.create_table("db.t", first.schema)
    assert "0 rows" in IcebergTable(ref)._repr_html_()
    for _ in range(4):
        table.append(first)
    shown = IcebergTable(ref)._repr_html_()
    told = cells(shown)
    figures = dict(pairwise(told))
    assert (figures["records"], figures["data files"], figures["snapshots"]) == ("12", "4", "4")
    assert "<th>id<br>int64</th><th>&lt;text&gt;<br>" in shown
    assert "&lt;i&gt;a&lt;/i&gt;" in shown
    assert "<i>" not in shown
    assert "12 rows" in shown
    ids = [str(snapshot.snapshot_id) for snapshot in table.snapshots()]
    assert [each for each in ids if each in told] == ids
    assert IcebergTable(ref).rows.filter("id = 1")._repr_html_().count("<td>1</td>") == 4


def test_a_table_of_windows_is_plotted(tmp_path: Path) -> None:
    ref = TableRef("db", "t", IcebergStorage.Local(str(tmp_path)))
    catalog = ref.load_catalog()
    catalog.create_namespace("db")
    times = [datetime(2026, 11, 1, hour, tzinfo=UTC) for hour in range(4)]
    rows = pa.table({"window_start": times[:3], "window_end": times[1:], "n": [1, 5, 2]})
    catalog.create_table("db.t", rows.schema).append(rows)
    for value in (IcebergTable(ref), IcebergTable(ref).rows):
        assert value._repr_html_().count("<polyline") == 1
