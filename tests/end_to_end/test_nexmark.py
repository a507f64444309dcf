"""Nexmark's queries from their texts, each as one job over four epochs: their tables have what DuckDB computes."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from examples.nexmark import QUERIES, Query, sources_of
from examples.nexmark.events import write
from tests.nexmark import differences
from tests.recovery.runs import load
from tests.sinks import config_of, sink_of
from tests.tiers import some
from volley import Environment

_EVENTS, _EVERY = 10_000, 5_000
"""They are 50 seconds."""


@pytest.mark.parametrize(
    "query",
    some(QUERIES.values(), by=lambda query: (len(query.tables), bool(query.keys))),
    ids=lambda query: query.name,
)
def test_a_query_is_one_job(native: Environment, query: Query, tmp_path: Path) -> None:
    folders = write(tmp_path / "events", _EVENTS, files=4, every=_EVERY)
    sources = sources_of(tmp_path / "events")
    pipelines = [query.rows(native, sources).to_sink(query.sink(config_of(tmp_path, query.name)))]
    if query.name == "q12":
        # The clock of each epoch, to replay it.
        bids = native.from_source(sources["bid"]).with_processing_time("p_time")
        pipelines.append(bids.to_sink(sink_of(tmp_path, "bid")))
    job = native.execute(query.name, *pipelines)
    assert (job.metrics.rows_late, job.progress.epochs) == (0, 4)
    tables = {name: pq.read_table(folder) for name, folder in folders.items()}
    if query.name == "q12":
        tables["bid"] = load(tmp_path, "db.bid").scan().to_arrow()
    found = load(tmp_path, f"db.{query.name}").scan().to_arrow()
    assert found.num_rows
    assert not differences(query.name, found, **tables)
