"""Nexmark's queries by Spark Structured Streaming into Iceberg tables, in a Python that has its packages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from benchmarks.peers.runtime import session, stream
from benchmarks.run import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark follows event time through the column of a window alone, not through its start.
_IN_SPARK = {
    "q5": """
        with counts as (
            select auction, count(*) as num, window from bid
            group by auction, window(date_time, '10 seconds', '2 seconds')
        ),
        most as (select max(num) as num, window from counts group by window)
        select c.auction, c.num, c.window.start as starttime
        from counts c join most m on c.window = m.window and c.num >= m.num
    """,
    "q7": """
        select b.auction, b.price, b.bidder, b.date_time, b.extra
        from bid b join (
            select price, window_time(window) as until
            from (select max(price) as price, window from bid group by window(date_time, '10 seconds'))
        ) m on b.price = m.price
        where b.date_time between m.until - interval 9.999999 seconds and m.until + interval 0.000001 seconds
    """,
    "q8": """
        select p.id, p.name, p.window.start as starttime
        from (select id, name, window from person group by id, name, window(date_time, '10 seconds')) p
        join (select seller, window from auction group by seller, window(date_time, '10 seconds')) a
        on p.id = a.seller and p.window = a.window
    """,
}


def spark(run: Run) -> None:
    """The text of the case over files, so many an epoch, into a table."""
    warm_up, folder, per_epoch = (run.options[name] for name in ("warm_up", "folder", "files_per_epoch"))
    stream(_rows(run, warm_up, 1), "warm_up", run.folder)
    run.measure_steady(lambda: _into(run, _rows(run, folder, per_epoch)))


def _rows(run: Run, folder: str, files: int) -> DataFrame:
    engine = session(run)
    # As many partitions as cores: 200 would cost many times more.
    engine.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count()))
    for name in run.options["tables"]:
        path = f"{folder}/{name}"
        reader = engine.readStream.schema(engine.read.parquet(path).schema).option("maxFilesPerTrigger", files)
        reader.parquet(path).withWatermark("date_time", "4 seconds").createOrReplaceTempView(name)
    engine.read.parquet(run.options["side_input"]).createOrReplaceTempView("side_input")
    return engine.sql(_IN_SPARK.get(str(run.case), run.options["text"]))


def _into(run: Run, rows: DataFrame) -> dict[str, Any]:
    stream(rows, "benchmark", run.folder)
    return {"found": session(run).table("volley.b.benchmark").count()}
