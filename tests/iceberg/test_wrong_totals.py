"""Totals in summaries are what a writer says: DuckDB's never fall, others' may be missing. Manifests are counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.recovery.lake import QUERY, SCHEMA, Lake, write
from volley import Environment, IcebergSink, MaterializedView, Metrics, PlanError, SinkContext, SourceContext
from volley.contracts.source import Reader
from volley.iceberg import IcebergSinkConfig, IcebergSource, IcebergSourceConfig, IcebergTable, Incremental
from volley.iceberg.commit.probes import table_probes

TOTALS = ["999", "0", "none", None]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    driver = made.driver()
    for number in range(3):
        driver.commit(*write(driver, number, [2 * number, 2 * number + 1]))
    yield made
    made.close()


def say(lake: Lake, total: str | None, prefixes: tuple[str, ...] = ("total-",), table: str = "events") -> None:
    """Put this in the place of each total of all summaries; None leaves them out."""
    loaded = lake.config.ref.beside(table).load()
    place = Path(loaded.metadata_location.removeprefix("file://"))
    metadata = json.loads(place.read_text())
    for snapshot in metadata["snapshots"]:
        summary = snapshot["summary"]
        for name in [name for name in summary if name.startswith(prefixes)]:
            summary |= {} if total is None else {name: total}
            if total is None:
                del summary[name]
    place.write_text(json.dumps(metadata))


@pytest.mark.parametrize("total", TOTALS)
def test_check_counts_the_rows(total: str | None, lake: Lake) -> None:
    say(lake, total)
    probe = next(probe for probe in table_probes(lake.config, SCHEMA) if probe.name == "table")
    assert probe.run() == "db.events, 6 rows"


@pytest.mark.parametrize("total", TOTALS)
def test_a_new_query_of_a_job_whose_rows_are_there_is_noticed(total: str | None, lake: Lake) -> None:
    say(lake, total)
    another = "another query"
    committer = lake.driver()
    committer.last_epoch(another)
    assert "earlier queries of job 'job'" in str(committer.earlier_rows(another))
    assert committer.earlier_rows(QUERY) is None


@pytest.mark.parametrize("total", TOTALS)
def test_rows_that_are_gone_are_no_earlier_rows(total: str | None, lake: Lake) -> None:
    lake.table().delete("id >= 0")
    say(lake, total)
    committer = lake.driver()
    committer.last_epoch("another query")
    assert committer.earlier_rows("another query") is None


@pytest.mark.parametrize("total", TOTALS)
def test_a_view_counts_its_sources(total: str | None, lake: Lake) -> None:
    lake.table().delete("id < 2")
    say(lake, total)
    query = Environment().from_source(IcebergSource(IcebergSourceConfig(lake.config.ref)))
    view = MaterializedView("ids", query, IcebergSinkConfig.from_table(lake.config.ref.beside("ids")))
    view.refresh()
    assert view.explain().all_rows == 4
    say(lake, total, table="ids")
    assert view.refresh("full").rows_added == 4


@pytest.mark.parametrize("total", ["0", "none", None])
def test_a_view_takes_no_table_with_rows_of_others(total: str | None, lake: Lake) -> None:
    committer = IcebergSink(replace(lake.config, table="ids")).open(SinkContext("job", SCHEMA, Metrics()))
    committer.commit(*write(committer, 0, [1]))  # type: ignore[arg-type]
    say(lake, total, table="ids")
    query = Environment().from_source(IcebergSource(IcebergSourceConfig(lake.config.ref)))
    view = MaterializedView("ids", query, IcebergSinkConfig.from_table(lake.config.ref.beside("ids")))
    with pytest.raises(PlanError, match="rows that are not of a view"):
        view.refresh()


@pytest.mark.parametrize("total", TOTALS)
def test_a_stream_reads_every_row(total: str | None, lake: Lake, tmp_path: Path) -> None:
    say(lake, total)
    reader = stream(lake, tmp_path)
    end = reader.latest_offset(reader.initial_offset(), None, None)
    splits = reader.splits(reader.initial_offset(), end)
    batches = [batch for split in splits for batch in reader.read(split)]
    assert sorted(pa.Table.from_batches(batches)["id"].to_pylist()) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("total", TOTALS)
def test_the_next_commit_has_its_rows(total: str | None, lake: Lake) -> None:
    say(lake, total)
    driver = lake.driver()
    driver.commit(*write(driver, 3, [6]))
    IcebergTable(lake.config).compact(least_files=2)
    assert lake.rows() == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("added", ["none", None])
def test_the_lag_counts_rows_that_a_writer_has_not(added: str | None, lake: Lake, tmp_path: Path) -> None:
    reader = stream(lake, tmp_path)
    begin = reader.latest_offset(reader.initial_offset(), None, None)
    driver = lake.driver()
    for number in (3, 4):
        driver.commit(*write(driver, number, [number * 100]))
    say(lake, added, ("total-", "added-records"))
    lag = stream(lake, tmp_path).lag(begin)
    assert lag is not None
    assert (lag.rows, lag.snapshots) == (2, 2)


def stream(lake: Lake, folder: Path) -> Reader:
    config = IcebergSourceConfig(lake.config.ref).with_mode(Incremental())
    return IcebergSource(config).open(SourceContext(str(folder / "state")))
