"""Plain Spark, as a careful user sets it up: streams whose rows are counted, without a sink."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def session() -> SparkSession:
    """The session, with a heap that the state of a million keys fits into; the default is 1 GB."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{os.cpu_count()}]").config("spark.sql.session.timeZone", "UTC")
    spark = builder.config("spark.driver.memory", "6g").getOrCreate()
    # As many partitions as cores: 200 would cost many times more.
    spark.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count()))
    return spark


def counted(stream: DataFrame, checkpoint: Path) -> int:
    """Run a stream over all that is there now; return how many rows it gave."""
    counts: list[int] = []
    writer = stream.writeStream.outputMode("append").foreachBatch(lambda frame, _: counts.append(frame.count()))
    writer = writer.option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return sum(counts)
