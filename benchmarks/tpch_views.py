"""Views of TPC-H's queries, refreshed by changes, anew, and as the library decides."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.benchmark import Benchmark, Limit, Run, benchmark
from benchmarks.lake import Lake, write_epoch
from benchmarks.measure import measured
from benchmarks.rows import Bound, Row
from benchmarks.run import MissingPeerError
from volley import DataStream, Environment, IcebergSource, IcebergSourceConfig, MaterializedView, col, count, lit, sum_
from volley.iceberg import IcebergTable, TableRef, Upsert

_TABLES = ("lineitem", "orders", "customer", "supplier", "nation", "region", "part")
_LINES = 6_000_000  # of TPC-H at scale 1
_PAGES = {"write.parquet.page-row-limit": "20000"}
_KEYS = {"orders": ("o_orderkey",), "lineitem": ("l_orderkey", "l_linenumber")}
# The parts of all orders that change at once, all over or the latest, and what changes of their lines: the price, or a
# column that no query has.
_CHANGES: dict[str, tuple[float, bool, str]] = {
    "1 %": (0.01, False, "l_extendedprice"),
    "0.005 %": (0.00005, False, "l_extendedprice"),
    "the latest 0.005 %": (0.00005, True, "l_extendedprice"),
    "1 % of another column": (0.01, False, "l_quantity"),
    "0.005 % of another column": (0.00005, False, "l_quantity"),
}
_QUERIES = ("q1", "q3", "q5", "q10", "q14")
_AUTO, _CHANGED, _ANEW = 'mode="auto"', 'mode="incremental"', 'mode="full"'
_MODES = {"auto": _AUTO, "incremental": _CHANGED, "full": _ANEW}
# CPU-seconds by which medians of the same work differ: less is no difference.
_NOISE = 0.02


class _Tpch:
    """The tables of a lake, and the views over them.

    Args:
        lake: The lake.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._lines = self._stream("lineitem").with_column(
            "revenue", col("l_extendedprice").cast("double") * (lit(1.0) - col("l_discount").cast("double"))
        )

    def _ref(self, table: str) -> TableRef:
        return self._lake.named(table).ref

    def _stream(self, table: str) -> DataStream:
        return Environment().from_source(IcebergSource(IcebergSourceConfig(self._ref(table))))

    def view(self, query: str, mode: Any) -> MaterializedView:
        """The view of a query."""
        queries: dict[str, Callable[[], DataStream]] = {
            "q1": self._q1,
            "q3": self._q3,
            "q5": self._q5,
            "q10": self._q10,
            "q14": self._q14,
        }
        return MaterializedView(query, queries[query](), self._lake.named(f"view_{query}_{mode}"), mode=mode)

    def _orders(self, since: date, until: date) -> Any:
        return IcebergTable(self._ref("orders")).rows.filter(
            (col("o_orderdate") >= lit(since)) & (col("o_orderdate") < lit(until))
        )

    def _q1(self) -> DataStream:
        lines = self._lines.filter(col("l_shipdate") <= lit(date(1998, 9, 2)))
        return lines.key_by("l_returnflag", "l_linestatus").aggregate(revenue=sum_("revenue"), n=count())

    def _q3(self) -> DataStream:
        segment = IcebergTable(self._ref("customer")).rows.filter(col("c_mktsegment").eq(lit("BUILDING")))
        return (
            self._lines.filter(col("l_shipdate") > lit(date(1995, 3, 15)))
            .join(self._orders(date(1992, 1, 1), date(1995, 3, 15)), on={"l_orderkey": "o_orderkey"})
            .join(segment, on={"o_custkey": "c_custkey"})
            .key_by("l_orderkey", "o_orderdate", "o_shippriority")
            .aggregate(revenue=sum_("revenue"))
        )

    def _q5(self) -> DataStream:
        region = IcebergTable(self._ref("region")).rows.filter(col("r_name").eq(lit("ASIA")))
        return (
            self._lines.join(self._orders(date(1994, 1, 1), date(1995, 1, 1)), on={"l_orderkey": "o_orderkey"})
            .join(self._ref("customer"), on={"o_custkey": "c_custkey"})
            .join(self._ref("supplier"), on={"l_suppkey": "s_suppkey"})
            .filter(col("c_nationkey").eq(col("s_nationkey")))
            .join(self._ref("nation"), on={"s_nationkey": "n_nationkey"})
            .join(region, on={"n_regionkey": "r_regionkey"})
            .key_by("n_name")
            .aggregate(revenue=sum_("revenue"))
        )

    def _q10(self) -> DataStream:
        return (
            self._lines.filter(col("l_returnflag").eq(lit("R")))
            .join(self._orders(date(1993, 10, 1), date(1994, 1, 1)), on={"l_orderkey": "o_orderkey"})
            .join(self._ref("customer"), on={"o_custkey": "c_custkey"})
            .join(self._ref("nation"), on={"c_nationkey": "n_nationkey"})
            .key_by("o_custkey", "c_name", "c_acctbal", "c_phone", "n_name")
            .aggregate(revenue=sum_("revenue"))
        )

    def _q14(self) -> DataStream:
        month = (col("l_shipdate") >= lit(date(1995, 9, 1))) & (col("l_shipdate") < lit(date(1995, 10, 1)))
        return (
            self._lines.filter(month)
            .join(self._ref("part"), on={"l_partkey": "p_partkey"})
            .with_column("is_promo", col("p_type").starts_with("PROMO"))
            .key_by("is_promo")
            .aggregate(revenue=sum_("revenue"))
        )


def _generated(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Write TPC-H's tables as Parquet files, by the generator of the package tpchgen-cli."""
    program = Path(sys.executable).with_name("tpchgen-cli")
    if not program.exists():
        raise MissingPeerError("pip install tpchgen-cli")
    scale = str(asked.rows / _LINES)
    subprocess.run([program, "parquet", "--scale-factor", scale, "--output-dir", folder], check=True, text=True)
    yield {"tables": folder}


def _rows_of(tables: Path, table: str) -> pa.Table:
    rows = pq.read_table(tables / f"{table}.parquet")
    plain = [field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field for field in rows.schema]
    return rows.cast(pa.schema(plain)).combine_chunks()


def _change(lake: Lake, tables: Path, changes: str, epoch: int) -> None:
    """Change the price of some orders, and a number of each of their lines."""
    part, is_latest, changed_column = _CHANGES[changes]
    orders, lines = _rows_of(tables, "orders"), _rows_of(tables, "lineitem")
    changed = max(1, int(len(orders) * part))
    chosen = np.random.default_rng(epoch).choice(len(orders), changed, replace=False)
    orders = orders.slice(len(orders) - changed) if is_latest else orders.take(np.sort(chosen))
    lines = lines.filter(pc.is_in(lines["l_orderkey"], orders["o_orderkey"]))
    for name, rows, column in (("orders", orders, "o_totalprice"), ("lineitem", lines, changed_column)):
        values = pc.add(rows[column], pa.scalar(epoch, rows[column].type)).cast(rows[column].type)
        upserts = lake.named(name).with_commit_mode(Upsert(_KEYS[name], strategy="merge_on_read"))
        write_epoch(upserts, epoch, rows.set_column(rows.column_names.index(column), column, values).to_batches())


class _Worst(Limit):
    """The most that the library's choice may be of the cheaper kind of refresh, where it is most."""

    def bounds(self, row: Row) -> list[Bound]:
        chosen = [other for other in row.others if other.peer == _AUTO]
        if row is not max(chosen, key=self._ratio):
            return []
        value = self._ratio(row)
        return [Bound(f"{row.what}, the worst case: {self.unit}", value, self.most, self.times, value <= self.most)]

    def _ratio(self, row: Row) -> float:
        kinds = [other for other in row.others if other.case == row.case and other.peer != _AUTO]
        own, cheaper = self._taken(row, kinds), min(self._of(kind.runs) for kind in kinds)
        return own / cheaper if own - cheaper > _NOISE else 1.0

    def _taken(self, row: Row, kinds: list[Row]) -> float:
        """Return what the kind that was taken took."""
        raise NotImplementedError

    def _of(self, runs: Iterable[dict[str, Any]]) -> float:
        """Return the middle of some runs."""
        raise NotImplementedError


class _WorstMedian(_Worst):
    """By medians of what was measured."""

    def _taken(self, row: Row, kinds: list[Row]) -> float:
        return self._of(row.runs)

    def _of(self, runs: Iterable[dict[str, Any]]) -> float:
        return float(statistics.median(run[self.figure] for run in runs))


class _WorstMean(_Worst):
    """By means, for which every choice counts.

    A refresh that did what one of another view did after the same changes took as long: that one is compared with
    itself, as a mean of a few runs tells more of a busy machine than of the choice. One that was given up is its own.
    """

    def _taken(self, row: Row, kinds: list[Row]) -> float:
        return self._of(map(_of_the_same, row.runs, *(kind.runs for kind in kinds)))

    def _of(self, runs: Iterable[dict[str, Any]]) -> float:
        return float(statistics.mean(run[self.figure] for run in runs))


def _of_the_same(run: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    """Return the run among others that did the same; if there is none, the run."""
    did = ("mode", "read_share")
    return next((other for other in others if all(other[name] == run[name] for name in did)), run)


_LIMIT: dict[str, Any] = {"figure": "cpu_seconds", "most": 1.2, "times": "× those of the cheaper kind"}


@benchmark(
    rows=600_000,
    options={"refreshes": 5, "queries": _QUERIES},
    cases={"changes": tuple(_CHANGES)},
    case="",
    figures=("cpu_seconds", "seconds", "read_share", "mode"),
    plots=("cpu_seconds",),
    prepare=_generated,
    bounds=[
        _WorstMedian(unit="CPU-seconds of a refresh, median", **_LIMIT),
        _WorstMean(unit="CPU-seconds of a refresh, mean", **_LIMIT),
    ],
)
def tpch_views(run: Run) -> None:
    """Refreshes of views of TPC-H's queries after changes of orders and their lines: the kind that is taken, and both.

    A view of each kind is refreshed after the same changes, in turn. Two refreshes before those that are measured tell
    what each kind takes.
    """
    lake, tables, changes = Lake(run.folder / "lake"), Path(run.options["tables"]), str(run.case)
    for table in _TABLES:
        write_epoch(lake.named(table).with_table_properties(_PAGES), 0, _rows_of(tables, table).to_batches())
    views = {query: [(mode, _Tpch(lake).view(query, mode)) for mode in _MODES] for query in run.options["queries"]}
    for _, view in chain(*views.values()):
        view.refresh()

    def refresh(view: MaterializedView) -> dict[str, Any]:
        done = view.refresh()
        return {"read_share": done.rows_read / run.rows, "mode": done.mode}

    for epoch in range(1, 3 + run.options["refreshes"]):
        _change(lake, tables, changes, epoch)
        # The first refresh after a change finds less in memory than the next ones: each kind is the first one in turn.
        for query, number in product(views, range(len(_MODES))):
            mode, view = views[query][(number + epoch) % len(_MODES)]
            figures = measured(partial(refresh, view))
            if epoch > 2:
                run.record(_MODES[mode], f"{query}, {changes}", **figures)
