"""Tables of format version 3 in each catalog: no id of a row is given twice, whatever writers and catalogs do."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.snapshots import Snapshot
from requests.exceptions import ConnectionError as Unreachable

from tests.duck import query
from tests.recovery.lake import disturb
from tests.services import lakes
from tests.services.lakes import Lake
from tests.services.test_modes_of_catalogs import CHANGED, NEXT, ROWS, WRITTEN, Job, read, upserts
from volley import (
    CatalogError,
    ConfigError,
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    MemorySource,
    StorageError,
)
from volley.iceberg import (
    Append,
    IcebergTable,
    NessieCatalog,
    Partitioning,
    RestCatalog,
    SchemaEvolution,
    SnapshotManager,
    orphan_files,
    publish_branch,
    remove_orphan_files,
)
from volley.iceberg.modes import Strategy


@pytest.fixture(scope="module", params=lakes.with_version_3())
def lake(request: pytest.FixtureRequest) -> Lake:
    """Each catalog in turn."""
    made: Lake = request.param(request)
    return made


def metadata_of(table: Table) -> TableMetadataV3:
    assert isinstance(table.metadata, TableMetadataV3)
    return table.metadata


def ids_given(snapshot: Snapshot) -> tuple[int, int]:
    assert snapshot.first_row_id is not None
    assert snapshot.added_rows is not None
    return snapshot.first_row_id, snapshot.first_row_id + snapshot.added_rows


def check_ids(table: Table) -> None:
    """Each snapshot has given ids of its own, one after the other, and DuckDB reads each row with another one."""
    metadata = metadata_of(table)
    given = sorted(ids_given(snapshot) for snapshot in metadata.snapshots)
    assert all(end <= start for (_, end), (start, _) in pairwise(given)), given
    assert given[-1][1] <= (metadata.next_row_id or 0)
    for ref in metadata.refs.values():
        if table.location().startswith("file:"):
            scan = f"iceberg_scan('{table.metadata_location}', snapshot_from_id = {ref.snapshot_id})"
            row_ids = [row_id for (row_id,) in query(f"select _row_id from {scan}").fetchall()]
            assert None not in row_ids
            assert len(row_ids) == len({*row_ids})


def vector_files(table: Table) -> set[str]:
    files = table.inspect.delete_files().to_pylist()
    assert {file["file_format"] for file in files} == {"PUFFIN"}
    return {file["file_path"] for file in files}


def another(config: IcebergSinkConfig, strategy: Strategy) -> Job:
    """Another job that changes the same table."""
    job = Job(config, strategy)
    job.query = str(uuid.uuid4())
    return job


def row(number: int, cents: int = 0) -> dict[str, Any]:
    return {"id": number, "city": "a", "cents": cents}


def test_ids_under_conflicts_and_lost_answers(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    config = lake.config()
    job, other = Job(config, lake.strategy("merge_on_read")), another(config, "copy_on_write")
    job.epoch(upserts(*ROWS))
    assert metadata_of(lake.table(config)).next_row_id == len(ROWS)
    driver = job.driver()

    def faster(commit: Callable[[], Any]) -> Any:
        rival = other.driver()
        rival.commit(*other.write(rival, 0, upserts(row(0, 1), row(70, 1))))
        return commit()

    def lost_answer(commit: Callable[[], Any]) -> Any:
        commit()
        raise Unreachable("injected: connection reset after the commit")

    def lost_request(commit: Callable[[], Any]) -> Any:
        raise Unreachable("injected: connection reset before the commit")

    expected: dict[int, dict[str, Any]] = {each["id"]: each for each in ROWS}
    for number, fault in enumerate((lost_answer, lost_request), 1):
        disturb(monkeypatch, driver, fault)
        driver.last_epoch(job.query)
        rows = [row(1, number), row(60 + number)]
        driver.commit(*job.write(driver, number, upserts(*rows)))
        expected |= {each["id"]: each for each in rows}
        check_ids(lake.table(config))
        assert lake.rows(config) == read(config) == [expected[key] for key in sorted(expected)]
    before = metadata_of(lake.table(config)).next_row_id or 0
    driver = job.driver()
    disturb(monkeypatch, driver, faster)
    driver.last_epoch(job.query)
    driver.commit(*job.write(driver, 3, upserts(row(2, 3))))
    expected |= {0: row(0, 1), 70: row(70, 1), 2: row(2, 3)}
    check_ids(lake.table(config))
    assert (metadata_of(lake.table(config)).next_row_id or 0) > before
    assert lake.rows(config) == read(config) == [expected[key] for key in sorted(expected)]


def test_ids_of_branches_that_are_written_in_turn(lake: Lake) -> None:
    job = Job(lake.config(), lake.strategy("merge_on_read"))
    job.epoch(upserts(*ROWS))
    main, manager = job.config, SnapshotManager(job.config.ref)
    manager.create_branch("audit")
    on_branch = another(main.with_branch("audit"), lake.strategy("merge_on_read"))
    for number in range(3):
        job.epoch(upserts(row(0, number), row(30 + number)))
        on_branch.epoch(upserts(row(1, number), row(50 + number)))
        check_ids(lake.table(main))
    assert [each["id"] for each in read(main)] == [*range(6), 30, 31, 32]
    manager.rollback_to(manager.list_snapshots()[0].id)
    assert lake.rows(main) == read(main) == ROWS
    publish_branch(on_branch.config.ref)
    assert [each["id"] for each in read(main)] == [*range(6), 50, 51, 52]
    job.epoch(upserts(row(99)))
    check_ids(lake.table(main))
    assert [each["id"] for each in lake.rows(main)] == [*range(6), 50, 51, 52, 99]
    IcebergTable(main.ref).compact(rewrite_all=True)
    check_ids(lake.table(main))
    assert [each["id"] for each in lake.rows(main)] == [*range(6), 50, 51, 52, 99]


def test_files_with_vectors_stay_while_one_is_needed(lake: Lake) -> None:
    config = lake.config().with_max_records(2)
    job = Job(config, "merge_on_read")
    job.epoch(upserts(*ROWS))
    # One Puffin file with a vector of each data file; then one of them goes with its data file.
    deletions = [{**ROWS[number], "op": "d"} for number in (0, 2, 4)]
    if lake.refuses_vectors:
        with pytest.raises(StorageError, match="puffin"):
            job.epoch(deletions)
        assert lake.rows(config) == read(config) == ROWS
        return
    job.epoch(deletions)
    (first,) = vector_files(lake.table(config))
    job.epoch([{**ROWS[1], "op": "d"}])
    manager = SnapshotManager(config.ref)
    manager.expire_snapshots("0s", 1)
    remove_orphan_files(config, 0)
    assert lake.rows(config) == read(config) == [ROWS[3], ROWS[5]]
    assert first in vector_files(lake.table(config))
    IcebergTable(config.ref).compute_statistics()
    IcebergTable(config.ref).compact(rewrite_all=True)
    manager.expire_snapshots("0s", 1)
    # The REST server leaves checksums beside its metadata.
    assert [path for path in orphan_files(config, 0) if not path.endswith(".crc")] == []
    assert lake.rows(config) == read(config) == [ROWS[3], ROWS[5]]
    with pytest.raises(FileNotFoundError), lake.table(config).io.new_input(first).open() as stream:
        stream.read()


def test_a_table_is_upgraded_between_epochs(lake: Lake) -> None:
    config = lake.config().with_table_properties({"format-version": "2"})
    job = Job(config, lake.strategy("merge_on_read"))
    job.epoch(upserts(*ROWS))
    assert lake.table(config).metadata.format_version == 2
    assert IcebergTable(config.ref).upgrade(3) == 2
    assert metadata_of(lake.table(config)).next_row_id == 0
    job.epoch(NEXT)
    assert lake.rows(config) == read(config) == CHANGED
    # Those that were there, too, have ids from now on.
    given = metadata_of(lake.table(config)).next_row_id or 0
    # Rows whose files are copied in the same commit get ids in the new ones.
    assert given == (len(CHANGED) if lake.refuses_vectors else len(ROWS) + 2)


@pytest.mark.usefixtures("spark")
def test_a_routed_sink_makes_tables(lake: Lake, tmp_path: Path) -> None:
    base = lake.config()
    config = replace(base, table="{city}")
    rows = [{**each, "city": f"{base.table}{each['city']}"} for each in ROWS]
    source = MemorySource(pa.Table.from_pylist(rows, WRITTEN), rows_per_epoch=3)
    environment = Environment("local[2]", checkpoint_dir=str(tmp_path / "checkpoints"))
    environment.from_source(source).to_sink(IcebergSink(config).routed()).execute("routed")
    for city in "ab":
        table = lake.open_plain().load_table(("db", f"{base.table}{city}"))
        assert metadata_of(table).next_row_id == 3
        assert table.scan().to_arrow().sort_by("id")["id"].to_pylist() == [
            each["id"] for each in ROWS if each["city"] == city
        ]


def partitioned_by_several(lake: Lake) -> IcebergSinkConfig:
    """Return a table with two rows, partitioned by a transform of two columns, as no writer here makes it."""
    config = lake.config().with_partitioning([Partitioning.identity("city")])
    Job(config).epoch(upserts(*ROWS[:2]))
    place = Path(urlsplit(lake.table(config).metadata_location).path)
    metadata = json.loads(place.read_text())
    for part in (part for spec in metadata["partition-specs"] for part in spec["fields"]):
        del part["source-id"]
        part |= {"name": "by", "transform": "bucket[4]", "source-ids": [1, 2]}
    place.write_text(json.dumps(metadata))
    return config


def append(config: IcebergSinkConfig) -> None:
    job = Job(config)
    job.config, job.schema = config.with_commit_mode(Append()), WRITTEN
    job.epoch(ROWS)


REFUSED: dict[str, Callable[[IcebergSinkConfig], Any]] = {
    "append": append,
    "upsert": lambda config: Job(config, "merge_on_read").epoch(upserts(*ROWS)),
    "copy": lambda config: Job(config, "copy_on_write").epoch(upserts(*ROWS)),
    "compaction": lambda config: IcebergTable(config.ref).compact(rewrite_all=True),
    "manifests": lambda config: IcebergTable(config.ref).rewrite_manifests(),
    "column": lambda config: SchemaEvolution(config.ref.load().schema()).add("more", "int").apply(config.ref),
    "branch": lambda config: SnapshotManager(config.ref).create_branch("b"),
}


def test_a_transform_of_several_columns_is_read_and_not_changed(lake: Lake) -> None:
    """pyiceberg would write the metadata without the columns."""
    if lake.name in ("memory", "rest", "seaweed"):
        pytest.skip("its metadata can't be changed from outside")
    config = partitioned_by_several(lake)
    assert read(config) == ROWS[:2]
    assert IcebergTable(config.ref).rows.filter("city = 'b'").to_arrow().to_pylist() == [ROWS[1]]
    before = config.ref.load().metadata_location
    for change in REFUSED.values():
        with pytest.raises(ConfigError, match=r"transform bucket\[4\] of columns 1, 2") as caught:
            change(config)
        assert config.table_name in str(caught.value)
        assert caught.value.hint
    assert config.ref.load().metadata_location == before
    assert orphan_files(config, 0) == []
    assert read(config) == ROWS[:2]


@pytest.mark.nightly
def test_nessie_makes_tables_of_version_2(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> None:
    lake = lakes.nessie(request)
    given, version_3 = lake.config(), {"format-version": "3"}
    for ask in (lambda: given.with_table_properties(version_3), lambda: IcebergTable(given.ref).upgrade(3)):
        with pytest.raises(ConfigError, match="Nessie makes tables up to format version 2"):
            ask()
    # As any other REST catalog it is asked, and makes a table of version 2 without a word.
    assert isinstance(given.catalog, NessieCatalog)
    shared = {name: getattr(given.catalog, name) for name in ("warehouse", "credential", "properties", "timeout")}
    rest = replace(given, catalog=RestCatalog(given.catalog.address, **shared), table_properties=version_3)
    job = Job(rest, "merge_on_read")
    job.epoch(upserts(*ROWS))
    assert f"table {rest.table_name} is of format version 2" in caplog.text
    job.epoch(NEXT)
    assert lake.table(rest).metadata.format_version == 2
    assert lake.rows(rest) == CHANGED
    with pytest.raises(CatalogError, match=r"does not offer a request .* Implement format version update") as caught:
        IcebergTable(rest.ref).upgrade(3)
    assert rest.ref.address in str(caught.value)
    assert lake.table(rest).metadata.format_version == 2
    # A type of version 3 is refused before anything is written.
    rest = replace(rest, table=f"{rest.table}n")
    with pytest.raises(CatalogError, match="Unknown Iceberg primitive type 'timestamp_ns'"):
        lakes.driver(rest, pa.schema({"id": pa.int64(), "at": pa.timestamp("ns")}))
    assert not lake.open_plain().table_exists(rest.identifier)
