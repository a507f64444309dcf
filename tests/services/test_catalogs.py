"""Every catalog behaves alike: tables, whole jobs, restarts, schema checks, conflicts, each against its real server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from tests.recovery.lake import QUERY, disturb, write
from tests.services import lakes
from tests.services.lakes import SCHEMA, Lake, driver
from tests.services.pipeline import run, wanted, write_file
from volley import (
    CommitConflictError,
    IcebergSinkConfig,
    Metrics,
    SchemaMismatchError,
    TableNotFoundError,
)
from volley.iceberg.catalogs.answers import ATTEMPTS

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module", params=lakes.catalogs(lakes.rest))
def lake(request: pytest.FixtureRequest) -> Lake:
    """A catalog without and one with a server; each catalog in turn at night."""
    made: Lake = request.param(request)
    return made


@pytest.fixture(scope="module", params=lakes.catalogs())
def any_lake(request: pytest.FixtureRequest) -> Lake:
    """Each catalog in turn."""
    made: Lake = request.param(request)
    return made


# --- namespaces and tables


def test_namespaces_and_tables_are_made_listed_loaded_and_dropped(lake: Lake) -> None:
    config = lake.config()
    catalog, namespace = config.ref.load_catalog(), (f"n{config.table[:12]}",)
    catalog.create_namespace(namespace)
    assert namespace in catalog.list_namespaces()
    name = (*namespace, "events")
    assert not catalog.table_exists(name)
    made = catalog.create_table(name, Schema(NestedField(1, "id", LongType())))
    assert catalog.table_exists(name)
    assert catalog.list_tables(namespace) == [name]
    assert catalog.load_table(name).metadata.table_uuid == made.metadata.table_uuid
    catalog.drop_table(name)
    with pytest.raises(NoSuchTableError):
        catalog.load_table(name)
    catalog.drop_namespace(namespace)
    assert namespace not in catalog.list_namespaces()


def test_a_table_that_is_not_there_and_may_not_be_made(lake: Lake) -> None:
    config = lake.config()
    driver(config)
    absent = lake.config().with_create_table(False)
    with pytest.raises(TableNotFoundError, match=rf"db\.{absent.table} not found in") as caught:
        driver(absent)
    assert caught.value.hint


# --- jobs


def epochs(table: Table) -> list[str]:
    return [str(snapshot.summary["volley.epoch"]) for snapshot in table.snapshots() if snapshot.summary]


def test_files_are_filtered_into_a_table_and_the_next_run_adds_only_what_is_new(any_lake: Lake, tmp_path: Path) -> None:
    config = any_lake.config()
    for number in range(2):
        write_file(tmp_path, number)
    run(tmp_path, config)
    assert any_lake.ids(config) == wanted(2)
    write_file(tmp_path, 2)
    run(tmp_path, config)
    assert any_lake.ids(config) == wanted(3)
    # Nessie shows the current snapshot alone.
    assert epochs(any_lake.table(config)) == ["0", "1", "2"][-1 if any_lake.name == "nessie" else 0 :]


# --- schemas


WIDER = pa.schema([("id", pa.int64()), ("name", pa.string())])


def test_a_stream_that_does_not_fit_is_refused(lake: Lake) -> None:
    config = lake.config()
    driver(config)
    with pytest.raises(SchemaMismatchError, match="name") as caught:
        driver(config.with_schema_evolution("strict"), WIDER)
    assert caught.value.hint
    with pytest.raises(SchemaMismatchError, match="id"):
        driver(config, pa.schema([("id", pa.string())]))
    assert lake.table(config).schema().column_names == ["id"]


def test_columns_are_added(lake: Lake) -> None:
    config = lake.config()
    first = driver(config)
    first.commit(*write(first, 0, [1]))
    wider = driver(config.with_schema_evolution("add_columns"), WIDER)
    assert wider.last_epoch(QUERY) == 0
    assert lake.table(config).schema().column_names == ["id"]
    written = write(wider, 1, [2])
    lake.table(config).append(pa.table({"id": [50]}, schema=SCHEMA))
    wider.commit(*written)
    assert lake.table(config).schema().column_names == ["id", "name"]
    assert lake.rows(config) == [{"id": each, "name": None} for each in (1, 2, 50)]
    assert epochs(lake.table(config))[-1] == "1"


# --- others at the same table


def test_what_another_client_changes_between_epochs_is_seen_and_kept(lake: Lake) -> None:
    config = lake.config()
    ours = driver(config)
    ours.commit(*write(ours, 0, [1]))
    lake.table(config).append(pa.table({"id": [50]}, schema=SCHEMA))
    with lake.table(config).transaction() as change:
        change.set_properties(owner="somebody")
    assert ours.last_epoch(QUERY) == 0
    ours.commit(*write(ours, 1, [2]))
    assert lake.ids(config) == [1, 2, 50]
    assert lake.table(config).properties["owner"] == "somebody"


def first_another(lake: Lake, config: IcebergSinkConfig, row: int) -> Callable[[Callable[[], Any]], Any]:
    """A commit that somebody else is faster than: the catalog itself refuses it."""

    def commit(real: Callable[[], Any]) -> Any:
        lake.table(config).append(pa.table({"id": [row]}, schema=SCHEMA))
        return real()

    return commit


def test_a_conflict_is_tried_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    config, metrics = lake.config(), Metrics()
    ours = driver(config, metrics=metrics)
    ours.commit(*write(ours, 0, [1]))
    disturb(monkeypatch, ours, first_another(lake, config, 50))
    ours.commit(*write(ours, 1, [2]))
    assert lake.ids(config) == [1, 2, 50]
    assert metrics.commit_retries == 1


def test_a_conflict_over_a_tables_first_snapshot_is_tried_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    config = lake.config()
    ours = driver(config)
    disturb(monkeypatch, ours, first_another(lake, config, 50))
    ours.commit(*write(ours, 0, [1]))
    assert lake.ids(config) == [1, 50]


def test_conflicts_without_end_stop_the_job_and_nothing_of_it_has_landed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = lake.config()
    ours = driver(config)
    ours.commit(*write(ours, 0, [1]))
    disturb(monkeypatch, ours, *(first_another(lake, config, row) for row in range(50, 50 + ATTEMPTS)))
    written = write(ours, 1, [2])
    with pytest.raises(CommitConflictError, match=config.table) as caught:
        ours.commit(*written)
    assert caught.value.hint
    others = list(range(50, 50 + ATTEMPTS))
    assert lake.ids(config) == [1, *others]
    ours.commit(*written)
    assert lake.ids(config) == [1, 2, *others]
