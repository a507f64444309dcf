"""Properties of tables that should be numbers and are none: each that is used is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.recovery.lake import Lake, write
from volley import ConfigError
from volley.iceberg import IcebergTable, SnapshotManager


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    for number in range(2):
        append(made, number)
    yield made
    made.close()


def append(lake: Lake, number: int) -> None:
    driver = lake.driver()
    driver.commit(*write(driver, number, [number]))


def expire(lake: Lake) -> None:
    SnapshotManager(lake.config.ref).expire_snapshots()


def compact(lake: Lake) -> None:
    IcebergTable(lake.config.ref).compact()


EXPIRY = [
    "history.expire.max-snapshot-age-ms",
    "history.expire.min-snapshots-to-keep",
    "history.expire.max-ref-age-ms",
]
WRITES = ["write.summary.partition-limit", "commit.manifest.min-count-to-merge", "commit.manifest.target-size-bytes"]
USES: list[tuple[Callable[[Lake], Any], str]] = [
    *((expire, name) for name in EXPIRY),
    *((lambda lake: append(lake, 2), name) for name in WRITES),
    *((compact, name) for name in [*WRITES, "write.target-file-size-bytes", "write.parquet.compression-level"]),
]


@pytest.mark.parametrize(("use", "name"), USES)
@pytest.mark.parametrize("text", ["5d", "-1", ""])
def test_a_number_that_is_none_is_named(use: Callable[[Lake], Any], name: str, text: str, lake: Lake) -> None:
    lake.table().transaction().set_properties({name: text}).commit_transaction()
    with pytest.raises(ConfigError, match=f"table property {name} is '{text}'"):
        use(lake)
    assert lake.rows() == [0, 1]
