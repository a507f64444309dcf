"""The age of rows: maintenance deletes those that are too old, whole files by their bounds, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile

from tests import maintenance
from tests.drivers import Drivers
from tests.iceberg import tables
from volley import ConfigError, IcebergSink, IcebergSinkConfig, Maintenance, SinkContext, TableRef
from volley.iceberg import IcebergTable
from volley.iceberg.maintain import aging
from volley.iceberg.maintain.aging import delete_old_rows
from volley.iceberg.maintain.maintainer import actions
from volley.metrics.metrics import Metrics
from volley.task.failpoints import ROW_TTL_POINT

CUTOFF = datetime(2026, 5, 1, tzinfo=UTC)
OLD, YOUNG = CUTOFF - timedelta(microseconds=1), CUTOFF
SCHEMA = pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC")})


class Lake(tables.Lake):
    """A table whose files have bounds of both columns, as writers give them."""

    def __init__(self, folder: Path, schema: pa.Schema = SCHEMA, version: int = 3) -> None:
        super().__init__(folder, schema)
        self.version = version
        self._next = 0

    def append(self, *times: Any) -> DataFile:
        """A file with a row for each time, by the writer of pyiceberg, which gives it bounds."""
        rows = [{"id": self._next + number, "at": at} for number, at in enumerate(times)]
        self._next += len(times)
        table = self.files.ref.load()
        before = {task.file.file_path for task in table.scan().plan_files()}
        table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()))
        files = (task.file for task in self.files.ref.load().scan().plan_files())
        return next(file for file in files if file.file_path not in before)

    def age(self, before: datetime = CUTOFF) -> tuple[int, int]:
        # pyiceberg appends to no table of format version 3.
        self.view.upgrade(self.version)
        aged = delete_old_rows(self.files.ref, "at", before, None)
        return aged.rows, aged.files

    def check(self, *ids: int) -> None:
        self.check_others(ids)
        assert sorted(self.view.to_arrow()["id"].to_pylist()) == [*ids]

    def data_files(self) -> int:
        return int(self.files.ref.load().inspect.data_files().num_rows)


@pytest.fixture(params=[pytest.param(2, marks=pytest.mark.format_2), 3])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "lake", version=request.param)
    yield made
    made.close()


def test_old_rows_go_and_others_stay(lake: Lake) -> None:
    lake.append(OLD, OLD)
    lake.append(OLD, YOUNG, None, OLD)
    lake.append(YOUNG)
    lake.append(OLD, None)
    assert lake.age() == (5, 1)
    assert lake.data_files() == 3
    lake.check(3, 4, 6, 8)
    # Nothing is left to do, and nothing is committed.
    before = lake.files.ref.load().metadata_location
    assert lake.age() == (0, 0)
    assert lake.files.ref.load().metadata_location == before


def test_rows_that_grow_old_in_a_file_with_deletes(lake: Lake) -> None:
    lake.append(OLD, YOUNG, YOUNG + timedelta(days=2), YOUNG + timedelta(days=9))
    assert lake.age() == (1, 0)
    assert lake.age(CUTOFF + timedelta(days=1)) == (1, 0)
    lake.check(2, 3)
    assert lake.age(CUTOFF + timedelta(days=3)) == (1, 0)
    lake.check(3)
    # Deletes had hidden three of the four.
    assert lake.age(CUTOFF + timedelta(days=10)) == (4, 1)
    lake.check()


def test_files_that_others_change_meanwhile_wait_for_the_next_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.append(OLD, YOUNG)
    lake.append(OLD)
    others = [lambda: IcebergTable(lake.files.ref).compact(rewrite_all=True)]

    def reached(point: str, number: int) -> None:
        if others:
            others.pop()()

    monkeypatch.setattr(aging, "reach", reached)
    assert lake.age() == (0, 0)
    lake.check(0, 1, 2)
    assert lake.age() == (2, 0)
    lake.check(1)


@pytest.mark.nightly
def test_a_deletion_that_dies_loses_nothing(lake: Lake) -> None:
    lake.append(OLD, YOUNG)
    lake.append(OLD)
    IcebergTable(lake.files.ref).upgrade(lake.version)
    Drivers().die(f"{ROW_TTL_POINT}@0", maintenance.delete_old_rows, lake.files.ref, CUTOFF)
    lake.check(0, 1, 2)
    assert lake.age() == (2, 1)
    lake.check(1)


def maintained(ref: TableRef, column: str) -> IcebergSinkConfig:
    return IcebergSinkConfig.from_table(ref).with_maintenance(Maintenance(row_ttl="90d", row_ttl_column=column))


def test_maintenance_looks_again_once_a_hundredth_of_the_age_has_passed(lake: Lake) -> None:
    now = datetime.now(UTC)
    lake.append(now - timedelta(days=91), now)
    IcebergTable(lake.files.ref).upgrade(lake.version)
    config = maintained(lake.files.ref, "at")
    assert config.maintenance is not None
    action = actions(config, config.maintenance, lambda tasks: [task() for task in tasks])[0]
    assert re.match("1 rows with at before .* were deleted$", action.run() or "")
    lake.check(1)
    before = lake.files.ref.load().metadata_location
    assert action.run() is None
    assert lake.files.ref.load().metadata_location == before


def test_a_column_that_tells_no_age_is_an_error_when_the_job_starts(lake: Lake) -> None:
    context = SinkContext("job", SCHEMA, Metrics())
    for column, message in {"aat": "has no column 'aat'", "id": "it is long"}.items():
        with pytest.raises(ConfigError, match=message):
            IcebergSink(maintained(lake.files.ref, column)).open(context)
    committer = IcebergSink(maintained(lake.files.ref, "at")).open(context)
    committer.stop()


TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "date": (pa.date32(), [date(2026, 4, 30), date(2026, 5, 1)]),
    "local": (pa.timestamp("us"), [OLD.replace(tzinfo=None), YOUNG.replace(tzinfo=None)]),
}


@pytest.mark.parametrize("kind", TYPES)
def test_other_types_of_times(kind: str, tmp_path: Path) -> None:
    data_type, times = TYPES[kind]
    lake = Lake(tmp_path / "lake", pa.schema({"id": pa.int64(), "at": data_type}))
    lake.append(*times)
    assert lake.age() == (1, 0)
    lake.check(1)
    lake.close()


def test_what_has_no_age_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    with pytest.raises(ConfigError, match="by the age of column 'id': it is long"):
        delete_old_rows(lake.files.ref, "id", CUTOFF, None)
    lake.close()
