"""Refreshes of a materialised view beside what DuckDB takes to compute its query anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.benchmark import Benchmark, Limit, Run, benchmark
from benchmarks.events import numbered
from benchmarks.lake import Lake, write_epoch
from tests.duck import duckdb_with_iceberg
from volley import Environment, IcebergSource, IcebergSourceConfig, MaterializedView, avg, count, max_, min_, sum_
from volley.iceberg import Upsert

_VOLLEY, _DUCKDB = "Volley, refresh", "DuckDB, one thread, computed anew"
_ORDERS_OF_A_CUSTOMER = 10
_UPDATED, _DELETED, _NEW = 1_200, 200, 600
_BATCH = 500_000
# Changes are of the latest orders: this part of them does not change any more, if enough others are left.
_SETTLED = 0.99
# Small pages: old values of changed rows are read by page.
_PAGES = {"write.parquet.page-row-limit": "20000"}


def _view(lake: Lake, case: str) -> MaterializedView:
    source = IcebergSource(IcebergSourceConfig(lake.named(_layout(case))))
    extremes = {"low": min_("cents"), "high": max_("cents")} if case.endswith("extremes") else {}
    orders = Environment().from_source(source).key_by("customer")
    query = orders.aggregate(n=count(), total=sum_("cents"), mean=avg("cents"), **extremes)
    return MaterializedView(case, query, lake.named(f"view {case}"))


def _orders(ids: np.ndarray[Any, Any], customers: int, layout: str, seed: int) -> pa.RecordBatch:
    customer = ids // _ORDERS_OF_A_CUSTOMER if layout == "clustered" else (ids * 2_654_435_761) % customers
    cents = np.random.default_rng(seed).integers(100, 100_000, len(ids))
    return pa.record_batch({"id": ids, "customer": customer, "cents": cents, "note": numbered("note ", ids % 1_000)})


def _tables(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Write the orders, and fill the views, once for all runs."""
    rows, lake = asked.rows, Lake(folder)
    for layout in dict.fromkeys(map(_layout, asked.options["layout"])):
        parts = (np.arange(start, min(start + _BATCH, rows)) for start in range(0, rows, _BATCH))
        batches = (_orders(part, rows // _ORDERS_OF_A_CUSTOMER, layout, int(part[0])) for part in parts)
        config = lake.named(layout).with_max_records(1_000_000).with_table_properties(_PAGES)
        write_epoch(config, 0, batches)
    for case in asked.options["layout"]:
        _view(lake, case).refresh()
    yield {"lake": folder}


def _change(lake: Lake, layout: str, rows: int, epoch: int) -> None:
    """Commit 2,000 changes of the latest orders."""
    changed, begin = _UPDATED + _DELETED, rows + epoch * _NEW
    latest = np.arange(min(int(rows * _SETTLED), rows - 2 * changed), rows)
    old = np.random.default_rng(epoch).choice(latest, changed, replace=False)
    ids = np.concatenate([old, np.arange(begin, begin + _NEW)])
    batch = _orders(ids, rows // _ORDERS_OF_A_CUSTOMER, layout, epoch)
    deleted = pa.array(np.arange(len(ids)) < _DELETED)
    upserts = lake.named(layout).with_commit_mode(Upsert("id", op_field="deleted", strategy="merge_on_read"))
    write_epoch(upserts, epoch, [batch.append_column("deleted", deleted)])


def _cpu(most: float) -> Limit:
    return Limit("cpu_seconds", "CPU-seconds of a refresh", most=most, of=_VOLLEY, beside=_DUCKDB)


_CASES = ("clustered", "scattered", "clustered extremes", "scattered extremes")
_READ = Limit("read_share", "of the source's rows read", most=0.05, of=_VOLLEY)
_SETTINGS: dict[str, Any] = {
    "peers": {"volley": _VOLLEY, "duckdb": _DUCKDB},
    "options": {"refreshes": 5, "mode": "auto"},
    "cases": {"layout": _CASES},
    "case": "",
    "figures": ("cpu_seconds", "seconds", "read_share", "mode"),
    "plots": ("cpu_seconds",),
    "prepare": _tables,
}


@benchmark("view_refresh_2m", rows=2_000_000, bounds=[_cpu(1.1)], **_SETTINGS)
@benchmark(rows=20_000_000, bounds=[_cpu(0.1), _READ], **_SETTINGS)
def view_refresh(run: Run) -> None:
    """A refresh of a view after 2,000 changes of orders, and the same query computed anew by DuckDB."""
    lake, case, connection = Lake(run.options["lake"]), str(run.case), duckdb_with_iceberg()
    view, layout = _view(lake, case), _layout(case)
    connection.execute("set threads = 1")

    def refresh() -> dict[str, Any]:
        done = view.refresh(run.options["mode"])
        return {"read_share": done.rows_read / run.rows, "mode": done.mode}

    def query() -> dict[str, Any]:
        return {"groups": len(connection.sql(_sql(lake, case)).to_arrow_table()), "read_share": 1.0}

    if run.peer == "volley":
        refresh()
        first = len(lake.table(layout).snapshots())
        for epoch in range(first, first + run.options["refreshes"]):
            _change(lake, layout, run.rows, epoch)
            run.measure(refresh)
        _check(lake, case, view)
    else:
        query()
        for _ in range(2):
            run.measure(query)


def _layout(case: str) -> str:
    """The layout of a case, which is also the name of its table."""
    return case.partition(" ")[0]


def _sql(lake: Lake, case: str) -> str:
    orders = lake.table(_layout(case)).metadata_location
    extremes = ", min(cents) low, max(cents) high" if case.endswith("extremes") else ""
    return (
        f"select customer, count(*) n, sum(cents)::bigint total, avg(cents) mean{extremes} "
        f"from iceberg_scan('{orders}') group by customer"
    )


def _check(lake: Lake, case: str, view: MaterializedView) -> None:
    expected, connection = _sql(lake, case), duckdb_with_iceberg()
    columns = ", ".join(connection.sql(expected).columns)
    found = f"select {columns} from iceberg_scan('{view.into.ref.load().metadata_location}')"
    different = f"select count(*) from (({found} except {expected}) union all ({expected} except {found}))"
    ((count_,),) = connection.sql(different).fetchall()
    assert count_ == 0, f"{count_} groups differ"
