"""Tumbling windows in PyFlink, in its own idiom: SQL over files or a topic, into CSV files.

A warm-up runs the query in the same JVM before: neither its start nor the compilation of hot code is measured.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

from benchmarks.peers.environment import PeerEnvironment
from benchmarks.peers.totals import Totals
from benchmarks.run import Result, Run

__all__ = ["flink"]

_ENVIRONMENT = PeerEnvironment(
    "pyflink",
    ("apache-flink==2.3.0", "setuptools==80.9.0"),
    (
        "org.apache.flink:flink-sql-parquet:2.3.0",
        "org.apache.hadoop:hadoop-client-api:3.4.1",
        "org.apache.hadoop:hadoop-client-runtime:3.4.1",
        "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",
    ),
)
# Its timestamps have milliseconds at most where they carry a watermark; seconds make the same windows.
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


def flink(run: Run, form: str, source: str, warm_up: str, brokers: str = "") -> list[Result]:
    """Run it with a core for each of its tasks' parts, in a Python that has PyFlink.

    Args:
        run: The run.
        form: ``parquet``, ``json`` or ``kafka``.
        source: The folder or the topic.
        warm_up: A smaller one.
        brokers: Where the topics are.
    """
    options = {"form": form, "source": source, "warm_up": warm_up, "brokers": brokers}
    return _ENVIRONMENT.run(run, _work, options)


def _work(run: Run) -> None:
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
    run.measure(lambda: query("source")).update(_found(run.folder / "source").figures())


def _found(folder: Path) -> Totals:
    totals = Totals()
    for path in folder.rglob("part-*"):
        with path.open() as file:
            for _, _, n, total, low, high in csv.reader(file):
                totals.add(int(n), float(total), float(low), float(high))
    return totals
