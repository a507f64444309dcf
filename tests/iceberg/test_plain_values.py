"""Single values that are looked up in pages of plain numbers: those that decoding the pages gives, or none."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.iceberg.test_pages import ROWS, TYPES, paged, plain, written
from volley.errors import SourceError
from volley.formats.parquet_ranges import plain_values

PLAIN: dict[str, Any] = {"data_page_size": 3_000, "use_dictionary": False, "compression": "none"}
NUMBERS = {"id", "small", "real", "day", "at", "hour"}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    table = pa.table({name: pa.array(map(make, range(ROWS)), of) for name, (of, make) in TYPES.items()})
    holes = pa.array([None if n % 900 == 707 else n for n in range(ROWS)], pa.int64())
    return table.append_column("holes", holes).append_column("hour", table["at"].cast(pa.time64("us")))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("is_local", [True, False])
def test_values_of_rows(rows: pa.Table, version: str, is_local: bool, tmp_path: Path) -> None:
    file = written(rows, tmp_path / "file.parquet", **PLAIN, data_page_version=version, row_group_size=3_000)
    if not is_local:
        content = (tmp_path / "file.parquet").read_bytes()
        file = replace(file, open=lambda: nullcontext(BytesIO(content)))
    wanted = np.array([0, 1, 700, 701, 1_999])
    with paged(file) as (_, index):
        for group in (0, 1):
            for name in rows.column_names:
                column = index.column(group, name)
                if column is None:
                    continue
                values = plain_values(index, column, rows.schema.field(name).type, wanted)
                assert (values is not None) == (name in NUMBERS), name
                if values is not None:
                    expected = rows[name].slice(3_000 * group).take(pa.array(wanted)).combine_chunks()
                    assert values.type == expected.type
                    assert plain(values) == plain(expected), name
                if name == "holes":
                    # A page with a null has to be decoded; others have not.
                    first = plain_values(index, column, pa.int64(), np.array([2, 8]))
                    assert plain(first) == plain(rows[name].take([3_000 * group + 2, 3_000 * group + 8]))


@pytest.mark.parametrize(
    "options",
    [{"use_dictionary": True}, {"compression": "zstd"}, {"column_encoding": {"id": "DELTA_BINARY_PACKED"}}],
)
def test_values_that_are_stored_in_another_way(rows: pa.Table, options: dict[str, Any], tmp_path: Path) -> None:
    with paged(written(rows.select(["id"]), tmp_path / "file.parquet", **{**PLAIN, **options})) as (_, index):
        column = index.column(0, "id")
        assert column is not None
        assert plain_values(index, column, pa.int64(), np.array([3])) is None


def test_a_page_index_that_does_not_fit_the_pages(rows: pa.Table, tmp_path: Path) -> None:
    with paged(written(rows.select(["id"]), tmp_path / "file.parquet", **PLAIN)) as (_, index):
        column = index.column(0, "id")
        assert column is not None
        short = replace(column, pages=[{**page, 2: 10} for page in column.pages])
        with pytest.raises(SourceError, match="does not fit its pages"):
            plain_values(index, short, pa.int64(), np.array([0]))
