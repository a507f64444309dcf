"""What the ids of rows in format version 3 cost an upsert, and what they save those who read its changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.benchmark import Limit, Run, benchmark
from benchmarks.events import named_rows, session_rows
from benchmarks.lake import Lake, write_epoch
from volley import IcebergSinkConfig
from volley.iceberg import IcebergTable, Upsert, changes_between
from volley.iceberg.modes import Strategy

_PART = 1_000_000
_NONE, _INHERITED, _STORED = "none", "inherited", "stored"


@benchmark(
    rows=10_000_000,
    repeat=3,
    peers={
        _NONE: "format version 2",
        _INHERITED: "version 3, ids inherited from manifests",
        _STORED: "version 3, ids stored in files",
    },
    options={"keys": 1_000_000},
    figures=("cpu_seconds", "seconds", "rows_per_cpu_second"),
    bounds=(
        Limit("cpu_seconds", "CPU", most=1.1, of="version 3, ids inherited from manifests", beside="format version 2"),
        Limit("cpu_seconds", "CPU", most=1.35, of="version 3, ids stored in files", beside="format version 2"),
    ),
)
def upsert_with_ids(run: Run) -> None:
    """Upsert of many keys into a large table whose rows keep their ids, beside format version 2: CPU."""
    lake, keys = Lake(run.folder), run.options["keys"]
    for name, rows in (("small", 1_000), ("large", run.rows)):
        config = _upserting(lake.named(name), run.peer)
        ids = np.random.default_rng(7).permutation(rows)
        write_epoch(config, 0, *([named_rows(ids[start : start + _PART], 0.0)] for start in range(0, rows, _PART)))
        if run.peer == _STORED:
            # Sorted by another column, ids come in no order: they compress worst.
            IcebergTable(config.ref).compact(rewrite_all=True, sort_by="name")
    changed = np.random.default_rng(8).choice(run.rows, keys, replace=False)
    # The first one warms up.
    write_epoch(_upserting(lake.named("small"), run.peer), 1, [named_rows(changed[:100] % 1_000, 1.0)])
    config = _upserting(lake.named("large"), run.peer)
    run.measure(lambda: write_epoch(config, 1, [named_rows(changed, 1.0)]), rows=keys)
    found = lake.table("large").scan(selected_fields=("id", "value")).to_arrow()
    assert found.num_rows == len(found["id"].unique()) == run.rows
    assert sum(found["value"].to_numpy()) == keys


@benchmark(
    rows=500_000,
    repeat=5,
    peers={_NONE: "by values", _INHERITED: "by ids", _STORED: "by stored ids"},
    options={"updates": 5_000},
    figures=("cpu_seconds", "seconds"),
    bounds=(
        Limit("cpu_seconds", "CPU", most=0.5, of="by ids", beside="by values"),
        Limit("cpu_seconds", "CPU", most=0.5, of="by stored ids", beside="by values"),
    ),
)
def changes_by_ids(run: Run) -> None:
    """Changes of rows of which most are only copied to another file, by their ids beside by their values: CPU."""
    config, updates = _upserting(Lake(run.folder).config, run.peer, "copy_on_write"), run.options["updates"]
    random = np.random.default_rng(7)
    ids = random.permutation(run.rows)
    write_epoch(config, 0, [session_rows(ids, 0.0)])
    if run.peer == _STORED:
        write_epoch(config, 1, [session_rows(random.choice(ids, updates, replace=False), 0.5)])
    # The first changes warm up.
    assert changes_between(config.ref, None).to_arrow().num_rows > 0
    start = config.ref.load().current_snapshot()
    assert start is not None
    write_epoch(config, 2, [session_rows(random.choice(ids, updates, replace=False), 1.0)])
    changes = changes_between(config.ref, start.snapshot_id)

    def work() -> None:
        assert changes.to_arrow().num_rows == 2 * updates

    run.measure(work)


def _upserting(config: IcebergSinkConfig, ids: str, strategy: Strategy = "merge_on_read") -> IcebergSinkConfig:
    config = config.with_table_properties({"format-version": "2" if ids == _NONE else "3"})
    return replace(config, commit_mode=Upsert("id", strategy=strategy))
