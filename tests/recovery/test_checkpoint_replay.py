"""Spark repeats epochs that its own log has lost: they are found in the table and skipped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql import SparkSession

from tests.recovery import pipeline
from tests.recovery.runs import FILES, check_exactly_once, load, write_input
from volley import (
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    MemorySource,
    PlanError,
    Progress,
    TableNotFoundError,
    VolleyError,
)

pytestmark = pytest.mark.usefixtures("spark")


def forget(folder: Path, log: str, *epochs: int) -> None:
    """Delete entries of one of Spark's logs, with their checksums."""
    entries = folder / "checkpoints" / "recovery" / log
    for epoch in epochs:
        (entries / str(epoch)).unlink()
        (entries / f".{epoch}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("forgotten", [[FILES - 1], [FILES - 2, FILES - 1]], ids=["the last", "the last two"])
def test_commits_that_spark_has_forgotten(forgotten: list[int], tmp_path: Path) -> None:
    write_input(tmp_path)
    pipeline.main(tmp_path)
    forget(tmp_path, "commits", *forgotten)
    again = pipeline.main(tmp_path).progress
    assert (again.skipped, again.rows) == (1, 0)
    check_exactly_once(tmp_path)


def test_all_of_spark_s_commits_forgotten(tmp_path: Path) -> None:
    write_input(tmp_path)
    pipeline.main(tmp_path)
    forget(tmp_path, "commits", *range(FILES))
    again = pipeline.main(tmp_path).progress
    assert again.rows == 0
    check_exactly_once(tmp_path)


def test_epochs_that_spark_plans_anew_have_the_same_rows(tmp_path: Path) -> None:
    write_input(tmp_path)
    pipeline.main(tmp_path)
    forget(tmp_path, "commits", FILES - 2, FILES - 1)
    forget(tmp_path, "offsets", FILES - 2, FILES - 1)
    again = pipeline.main(tmp_path).progress
    assert (again.skipped, again.rows) == (2, 0)
    check_exactly_once(tmp_path)


@pytest.mark.parametrize("within", [None, timedelta(days=1)], ids=["for ever", "within a day"])
def test_a_skipped_epoch_keeps_the_state_of_its_stateful_step(
    within: timedelta | None, spark: SparkSession, tmp_path: Path
) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    values = [{"id": number % 6, "at": at} for number in range(8)]
    config = IcebergSinkConfig(namespace=["db"], table="events", storage=IcebergStorage.Local(str(tmp_path / "lake")))
    environment = Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))

    def run(rows: int) -> Progress:
        source = MemorySource(values[:rows], rows_per_epoch=2)
        unique = environment.from_source(source).deduplicate("id", event_time="at" if within else None, within=within)
        return unique.to_sink(IcebergSink(config)).execute("recovery").progress

    run(4)
    forget(tmp_path, "commits", 1)
    again = run(8)
    assert again.skipped == 1
    assert sorted(load(tmp_path).scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("made_again", [False, True], ids=["gone", "made again"])
def test_a_table_dropped_between_two_runs_is_neither_made_nor_filled_from_the_middle(
    made_again: bool, tmp_path: Path
) -> None:
    write_input(tmp_path)
    pipeline.main(tmp_path)
    catalog = SqlCatalog("volley", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    schema = catalog.load_table("db.events").schema()
    catalog.drop_table("db.events")
    expected: type[VolleyError] = TableNotFoundError
    if made_again:
        catalog.create_table("db.events", schema, location=f"file://{tmp_path}/lake/again")
        expected = PlanError
    catalog.close()
    with pytest.raises(expected, match=r"db\.events.* (is gone|was dropped and made again)") as caught:
        pipeline.main(tmp_path)
    assert "fresh=True" in str(caught.value.hint)
    if made_again:
        assert load(tmp_path).snapshots() == []
    else:
        with pytest.raises(NoSuchTableError):
            load(tmp_path)
