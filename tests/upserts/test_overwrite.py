"""An overwrite replaces the whole table, the partitions it touches, or those that are named: one snapshot each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, Transform
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from tests.recovery.lake import disturb
from tests.upserts.conftest import MakeLake
from tests.upserts.lake import QUERY
from volley import CommitConflictError, CommitError, ConfigError, Epoch, IcebergSinkConfig, IcebergStorage
from volley.iceberg import Overwrite
from volley.iceberg.commit.loop import write_manifests
from volley.iceberg.commit.overwrite import check_named, overwrite
from volley.iceberg.write.writer import IcebergWriter

SCHEMA = pa.schema({"id": pa.int64()})


def ids(*values: int) -> list[dict[str, int]]:
    return [{"id": each} for each in values]


def test_the_last_epoch_is_all_there_is(make_lake: MakeLake) -> None:
    lake = make_lake(Overwrite(), SCHEMA)
    for epoch in ([1, 2], [3], [], [4, 5]):
        lake.epoch(ids(*epoch))
    assert lake.rows() == lake.duckdb_rows() == ids(4, 5)
    summaries = [each.summary for each in lake.table().snapshots()]
    assert [(s.operation.value, s["total-records"]) for s in summaries if s] == [
        *(("append", "2"), ("overwrite", "1"), ("overwrite", "2"))
    ]


def append(table: Table) -> None:
    table.append(pa.table({"id": [100]}))


@pytest.mark.parametrize("moment", ["between write and commit", "while it commits"])
def test_what_another_writer_adds_first_is_replaced_too(
    moment: str, make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake(Overwrite(), SCHEMA)
    lake.epoch(ids(1, 2))
    driver = lake.driver()
    driver.last_epoch(QUERY)
    written = lake.write(driver, 1, ids(3))

    def other_first(commit: Callable[[], Any]) -> Any:
        append(lake.table())
        return commit()

    if moment == "while it commits":
        disturb(monkeypatch, driver, other_first)
    else:
        append(lake.table())
    driver.commit(*written)
    assert lake.rows() == ids(3)


def test_two_drivers_with_the_same_epoch(make_lake: MakeLake) -> None:
    lake = make_lake(Overwrite(), SCHEMA)
    first, second = lake.driver(), lake.driver()
    one, two = (lake.write(each, 0, ids(1)) for each in (first, second))
    first.commit(*one)
    with pytest.raises(CommitConflictError, match="committed by another driver"):
        second.commit(*two)
    second.abort(*two)
    assert lake.rows() == ids(1)


def test_partitions_of_a_table_without_any_are_refused_when_the_job_starts(make_lake: MakeLake) -> None:
    for mode in (Overwrite.dynamic(), Overwrite.partitions({"id": 1})):
        with pytest.raises(ConfigError, match="needs partitions"):
            make_lake(mode, SCHEMA).driver()


class Partitioned:
    """A table with partitions, into which files are put as a committer puts them."""

    def __init__(self, catalog: Catalog, config: IcebergSinkConfig, *fields: tuple[str, Transform[Any, Any]]) -> None:
        schema = Schema(
            *(NestedField(1, "id", LongType()), NestedField(2, "country", StringType())),
            NestedField(3, "at", TimestampType()),
        )
        sources = {"id": 1, "country": 2, "at": 3}
        spec = PartitionSpec(
            *(PartitionField(sources[name], 1000 + n, kind, f"{name}_p") for n, (name, kind) in enumerate(fields))
        )
        self.config = config
        catalog.create_namespace_if_not_exists("db")
        self.table = catalog.create_table("db.parts", schema, partition_spec=spec)

    def put(self, mode: Overwrite, *rows: tuple[int, str | None, str]) -> None:
        """One epoch."""
        table = self.table.refresh()
        writer = IcebergWriter.for_table(table, self.config, Epoch(QUERY, 0))
        at = pa.array([day for _, _, day in rows]).cast(pa.timestamp("us"))
        task = writer.open(0)
        task.write(pa.record_batch([[row[0] for row in rows], [row[1] for row in rows], at], schema=writer.rows_schema))
        files = task.close().committables
        transaction = table.transaction()
        write_manifests(
            transaction, overwrite(mode, files, "main", table), table.metadata.new_snapshot_id(), {}, "main"
        )
        transaction.commit_transaction()

    def ids(self) -> list[int]:
        return sorted(self.table.refresh().scan().to_arrow()["id"].to_pylist())


MakePartitioned = Callable[..., Partitioned]
DAY = "2024-01-01"
NEXT = "2024-01-02"


@pytest.fixture
def partitioned(tmp_path: Path) -> Iterator[MakePartitioned]:
    config = IcebergSinkConfig(namespace="db", table="parts", storage=IcebergStorage.Local(str(tmp_path / "lake")))
    catalog = config.ref.load_catalog()
    yield lambda *fields: Partitioned(catalog, config, *fields)
    catalog.close()


def test_dynamic_replaces_the_partitions_that_have_rows(partitioned: MakePartitioned) -> None:
    made = partitioned(("country", IdentityTransform()), ("at", DayTransform()))
    made.put(Overwrite.dynamic(), (1, "NO", DAY), (2, "NO", NEXT), (3, "SE", DAY), (4, None, DAY))
    made.put(Overwrite.dynamic(), (5, "NO", DAY), (6, "DK", DAY))
    assert made.ids() == [2, 3, 4, 5, 6]
    made.put(Overwrite.dynamic(), (7, None, DAY))
    assert made.ids() == [2, 3, 5, 6, 7]
    assert len(made.table.refresh().snapshots()) == 3


def test_dynamic_replaces_buckets(partitioned: MakePartitioned) -> None:
    made = partitioned(("id", BucketTransform(4)))
    made.put(Overwrite.dynamic(), *((i, "NO", DAY) for i in range(40)))
    made.put(Overwrite.dynamic(), (7, "SE", DAY))
    bucket = BucketTransform(4).transform(LongType())
    assert made.ids() == [i for i in range(40) if bucket(i) != bucket(7) or i == 7]


def test_thousands_of_partitions_are_replaced_in_one_snapshot(partitioned: MakePartitioned) -> None:
    made = partitioned(("id", IdentityTransform()))
    made.put(Overwrite.dynamic(), *((i, "NO", DAY) for i in range(1500)))
    made.put(Overwrite.dynamic(), *((i, "SE", DAY) for i in range(1, 1500)))
    assert made.ids() == list(range(1500))
    assert len(made.table.refresh().snapshots()) == 2


def test_named_partitions_are_replaced_and_no_others(partitioned: MakePartitioned) -> None:
    made = partitioned(("country", IdentityTransform()), ("at", DayTransform()))
    start = [(1, "NO", DAY), (2, "NO", NEXT), (3, "SE", DAY), (4, None, DAY)]
    made.put(Overwrite.dynamic(), *start)
    # All days of the country are named, though there are rows of one.
    made.put(Overwrite.partitions({"country": "NO"}), (5, "NO", DAY))
    assert made.ids() == [3, 4, 5]
    made.put(Overwrite.partitions({"country": None}, {"country": "SE", "at_p": DAY}), (6, None, DAY))
    assert made.ids() == [5, 6]
    with pytest.raises(CommitError, match=r"rows of partition country_p=DK/at_p=2024-01-01 of table db\.parts"):
        made.put(Overwrite.partitions({"country": "NO"}), (7, "NO", DAY), (8, "DK", DAY))
    assert made.ids() == [5, 6]


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"land": "NO"}, "not partitioned by 'land'"),
        ({"at": DAY}, "not partitioned by 'at'"),
        ({"at_p": "soon"}, "'soon' is no value of the partition field 'at_p'"),
    ],
)
def test_names_that_are_no_partition_are_refused_when_the_job_starts(
    named: dict[str, Any], said: str, partitioned: MakePartitioned
) -> None:
    made = partitioned(("country", IdentityTransform()), ("at", DayTransform()))
    with pytest.raises(ConfigError, match=said):
        check_named(Overwrite.partitions(named), made.table)


def test_files_of_an_older_spec_are_told_apart_or_refused(partitioned: MakePartitioned) -> None:
    made = partitioned(("country", IdentityTransform()))
    made.put(Overwrite.dynamic(), (1, "NO", DAY), (2, "SE", DAY))
    with made.table.update_spec() as spec:
        spec.add_field("at", DayTransform(), "at_p")
    made.put(Overwrite.partitions({"country": "SE"}), (3, "SE", NEXT))
    assert made.ids() == [1, 3]
    with pytest.raises(CommitError, match=r"written under partition spec 0 \(country_p\)"):
        made.put(Overwrite.dynamic(), (4, "NO", DAY))
    made.put(Overwrite(), (5, "NO", DAY))
    assert made.ids() == [5]


def test_no_partition_named_is_refused() -> None:
    refused: list[tuple[Any, ...]] = [(), ({},), ("NO",)]
    for named in refused:
        with pytest.raises(ConfigError, match="partitions are"):
            Overwrite.partitions(*named)
