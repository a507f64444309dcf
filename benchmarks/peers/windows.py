"""Tumbling windows of a minute by other streaming engines, each in its own idiom, in a Python that has its packages.

Each gives the number of windows and the sums of their counts, sums, minima and maxima, to compare.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.peers.environment import PeerEnvironment
from benchmarks.run import Result, Run

# In batches of 1,000 rows bytewax takes four times as long: each batch visits all keys.
_ROWS_AT_ONCE = 1 << 16
_Totals = tuple[int, float, float, float]

# PyFlink's timestamps have milliseconds at most where they carry a watermark; seconds make the same windows.
_JSON = "`at` string, `second` as to_timestamp(substr(`at`, 1, 19))"
_PARQUET = "`at` timestamp(6), `second` as cast(`at` as timestamp(3))"
# It reads the files of a folder in no order: a watermark that waits for less than all of them drops rows as late.
_FILES = "'connector' = 'filesystem', 'path' = 'file://{source}'"
_EVENTS = {
    "parquet": (_PARQUET, "1' day", f"{_FILES}, 'format' = 'parquet', 'parquet.utc-timezone' = 'true'"),
    "json": (_JSON, "1' day", f"{_FILES}, 'format' = 'json'"),
    "kafka": (
        _JSON,
        "10' second",
        "'connector' = 'kafka', 'properties.bootstrap.servers' = '{brokers}', 'topic' = '{source}', 'format' = 'json', "
        "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'",
    ),
}
_TOTALS = """
create table {name}_totals (`start` timestamp(3), `user` string, n bigint, total double, low double, high double)
with ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv')
"""
_WINDOWS = """
insert into {name}_totals select window_start, `user`, count(*), sum(price), min(price), max(price)
from table(tumble(table {name}, descriptor(`second`), interval '1' minute)) group by window_start, window_end, `user`
"""

# The part of the rows that is left out of what is measured of Quix Streams.
_QUIX_WARM_UP = 4


def run_peer(run: Run, **options: Any) -> list[Result]:
    """Run the engine that the run's peer names; the options are those that its function below takes."""
    environment, work = _PEERS[run.peer]
    return environment.run(run, work, **options)


def bytewax(run: Run) -> None:
    """Keyed items of the Parquet ``file``, an event clock, a fold; all is measured but the imports."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.operators import windowing
    from bytewax.testing import TestingSink, TestingSource, run_main

    found: list[Any] = []
    flow = Dataflow("windows")
    # `TestingSource` passes on what an iterator gives, as its own Parquet recipes do.
    rows = op.input("rows", flow, TestingSource(_rows(Path(run.options["file"])), batch_size=_ROWS_AT_ONCE))
    began = datetime.now(UTC)
    # Its watermark goes on with the system's time, and rows that are read later than they happened would be late.
    clock = windowing.EventClock(lambda row: row[1], timedelta(seconds=10), now_getter=lambda: began)
    minutes = windowing.TumblingWindower(length=timedelta(minutes=1), align_to=datetime(2023, 1, 1, tzinfo=UTC))
    nothing = (0, 0.0, float("inf"), float("-inf"))
    totals = windowing.fold_window("totals", rows, clock, minutes, lambda: nothing, _with_row, _merged)
    op.output("out", totals.down, TestingSink(found))

    def work() -> dict[str, Any]:
        run_main(flow)
        return _figures((1, *window) for _, (_, window) in found)

    run.measure(work)


def _rows(file: Path) -> Iterator[tuple[str, tuple[float, datetime]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(file).iter_batches(columns=["user", "price", "at"]):
        # It takes UTC of the datetime module alone.
        columns = batch.set_column(2, "at", batch.column("at").cast(pa.timestamp("us"))).to_pydict()
        for user, price, at in zip(*columns.values(), strict=True):
            yield user, (price, at.replace(tzinfo=UTC))


def _with_row(totals: _Totals, row: tuple[float, datetime]) -> _Totals:
    n, total, low, high = totals
    return n + 1, total + row[0], min(low, row[0]), max(high, row[0])


def _merged(one: _Totals, other: _Totals) -> _Totals:
    return one[0] + other[0], one[1] + other[1], min(one[2], other[2]), max(one[3], other[3])


def pathway(run: Run) -> None:
    """A table of the JSON lines of ``file``, ``windowby`` with a behavior, ``reduce``; measured but for the imports."""
    os.environ["PATHWAY_THREADS"] = str(os.cpu_count())
    import pathway as pw

    class Event(pw.Schema):  # type: ignore[misc]
        user: str
        price: float
        at: str

    found: list[list[float]] = []

    def add(key: Any, row: Any, time: int, is_addition: bool) -> None:
        sign = 1 if is_addition else -1
        found.append([sign * value for value in (1, row["n"], row["total"], row["low"], row["high"])])

    def work() -> dict[str, Any]:
        rows = pw.io.jsonlines.read(run.options["file"], schema=Event, mode="static")
        # The files have the zone's hours alone.
        rows = rows.with_columns(at=(pw.this.at + "00").dt.strptime("%Y-%m-%d %H:%M:%S.%f%z"))
        minutes = rows.windowby(
            pw.this.at,
            window=pw.temporal.tumbling(duration=timedelta(minutes=1)),
            instance=pw.this.user,
            behavior=pw.temporal.common_behavior(delay=timedelta(seconds=10)),
        )
        windows = minutes.reduce(
            user=pw.this._pw_instance,
            start=pw.this._pw_window_start,
            n=pw.reducers.count(),
            total=pw.reducers.sum(pw.this.price),
            low=pw.reducers.min(pw.this.price),
            high=pw.reducers.max(pw.this.price),
        )
        pw.io.subscribe(windows, add)
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        return _figures(found)

    run.measure(work)


def flink(run: Run) -> None:
    """SQL over the files or the topic ``source`` of a ``form``, into CSV files, a core for each of its tasks' parts.

    The query has run over ``warm_up`` in the same JVM before: neither its start nor the compilation of hot code is
    measured.
    """
    from pyflink.table import EnvironmentSettings, TableEnvironment

    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = {"parallelism.default": str(os.cpu_count()), "table.local-time-zone": "UTC"}
    settings["pipeline.jars"] = ";".join(f"file://{jar}" for jar in run.options["jars"])
    for name, value in settings.items():
        environment.get_config().set(name, value)

    def query(name: str) -> None:
        columns, wait, where = _EVENTS[run.options["form"]]
        columns = f"`user` string, price double, {columns}, watermark for `second` as `second` - interval '{wait}"
        where = where.format(source=run.options[name], brokers=run.options["brokers"])
        environment.execute_sql(f"create table {name} ({columns}) with ({where})")
        environment.execute_sql(_TOTALS.format(name=name, path=run.folder / name))
        environment.execute_sql(_WINDOWS.format(name=name)).wait()

    query("warm_up")
    figures = run.measure(lambda: query("source"))
    lines = (line for path in (run.folder / "source").rglob("part-*") for line in path.read_text().splitlines())
    figures.update(_figures((1, *map(float, line.split(",")[2:])) for line in lines))


def quix(run: Run) -> None:
    """A dataframe over the ``topic``, keyed by user, of ``brokers``, ``tumbling_window``, ``agg``: ``windows`` in all.

    One process, as Quix runs one for a share of the partitions. Measured from the row behind those of a warm-up on: the
    start, the joining of the consumer group and the opening of its state are left out, and so is the broker's CPU. It
    keeps no changelog of its state, which a user may switch off and which would cost more.
    """
    from quixstreams import Application
    from quixstreams.dataframe.windows import Count, Max, Min, Sum

    options, started, found, seen = run.options, run.folder / "started", list[Iterable[float]](), [0]
    application = Application(
        options["brokers"],
        consumer_group=options["topic"],
        auto_offset_reset="earliest",
        state_dir=run.folder / "state",
        use_changelog_topics=False,
        loglevel="WARNING",
    )

    def at(value: Any, headers: Any, timestamp: float, kind: Any) -> int:
        seen[0] += 1
        if seen[0] == run.rows // _QUIX_WARM_UP:
            started.touch()
        return int(datetime.fromisoformat(value["at"]).timestamp() * 1000)

    rows = application.dataframe(application.topic(options["topic"], timestamp_extractor=at))
    minutes = rows.tumbling_window(timedelta(minutes=1), grace_ms=timedelta(seconds=10))
    windows = minutes.agg(n=Count(), total=Sum("price"), low=Min("price"), high=Max("price")).final("partition")
    windows.update(lambda window: found.append((1, *(window[name] for name in ("n", "total", "low", "high")))))

    def work() -> dict[str, Any]:
        application.run(count=options["windows"], timeout=30, collect=False)
        return _figures(found)

    run.measure(work, rows=run.rows - run.rows // _QUIX_WARM_UP, start=started)


def _figures(windows: Iterable[Iterable[float]]) -> dict[str, Any]:
    """The figures of a run, from a 1 and the totals of each window; those of one that is taken back are negative."""
    totals = [sum(column) for column in zip(*windows, strict=True)]
    return {"windows": totals[0], "totals": totals}


_PEERS = {
    "bytewax": (PeerEnvironment("bytewax", ("bytewax==0.21.1", "pyarrow==26.0.1")), bytewax),
    "pathway": (PeerEnvironment("pathway", ("pathway==0.33.0",)), pathway),
    "flink": (
        PeerEnvironment(
            "pyflink",
            ("apache-flink==2.3.0", "setuptools==80.9.0"),
            (
                "org.apache.flink:flink-sql-parquet:2.3.0",
                "org.apache.hadoop:hadoop-client-api:3.4.1",
                "org.apache.hadoop:hadoop-client-runtime:3.4.1",
                "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",
            ),
        ),
        flink,
    ),
    "quix": (PeerEnvironment("quix", ("quixstreams==3.28.1",)), quix),
}
"""The environment of each engine, and the function that it runs there."""
