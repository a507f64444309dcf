"""What Iceberg's Spark runtime does: each work in a warm session, its query's start counted, as for Volley.

Run as ``python -m benchmarks.peers.runtime_job JARS WORK SETTINGS``, by a Python that has PySpark 4.1.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Result, after, measured, print_result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "Iceberg's Spark runtime"
_WARM_UP_EPOCHS = 4
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Spark's own gigabyte, which does for Volley, is scarce for Parquet in the JVM.
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.volley": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.volley.type": "jdbc",
    "spark.sql.catalog.volley.jdbc.schema-version": "V1",
    # On a local disk Spark's own choice starts a shell for each file of its log: no part of the work.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def session(jars: str, lake: Path) -> SparkSession:
    """A session whose catalog lies in the lake."""
    from pyspark.sql import SparkSession

    own = {"uri": f"jdbc:sqlite:{lake}/catalog.db", "warehouse": f"file://{lake}"}
    settings = {**_SETTINGS, "spark.jars": jars, **{f"spark.sql.catalog.volley.{name}": own[name] for name in own}}
    spark = SparkSession.builder.master("local[*]").config(map={**settings}).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def stream(frame: DataFrame, table: str, lake: Path) -> None:
    """All that is there now into a new table."""
    create(frame, table)
    write = frame.writeStream.outputMode("append").option("checkpointLocation", f"{lake}/checkpoints/{table}")
    write.trigger(availableNow=True).toTable(f"volley.b.{table}").awaitTermination()


def create(frame: DataFrame, table: str) -> None:
    """A table with the frame's columns, compressed as Volley's."""
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema)
    properties = "'format-version'='2', 'write.parquet.compression-codec'='snappy'"
    frame.sparkSession.sql(f"create table volley.b.{table} ({columns}) using iceberg tblproperties ({properties})")


def written(spark: SparkSession, table: str, rows: int) -> dict[str, Any]:
    """Epochs and files, after a look that all rows are there."""
    found = spark.sql(f"select summary from volley.b.{table}.snapshots order by committed_at").collect()
    last = found[-1].summary
    assert int(last["total-records"]) == rows, f"{last['total-records']} rows in the table, not {rows}"
    return {"epochs": len(found), "files": int(last["total-data-files"]), "mb": int(last["total-files-size"]) / 1e6}


def files(spark: SparkSession, lake: Path, settings: dict[str, Any]) -> Result:
    """Parquet files, so many an epoch, through a filter."""
    rows, before, case = settings["rows"], settings["before"], settings["case"]

    def run(table: str, folder: str, per_epoch: int) -> None:
        schema = spark.read.parquet(folder).schema
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", per_epoch).parquet(folder)
        stream(frame.filter("id >= 0"), table, lake)

    def work() -> dict[str, Any]:
        run("benchmark", settings["folder"], settings["files_per_epoch"])
        return {}

    run("warm_up", settings["warm_up"], _WARM_UP_EPOCHS)
    result = measured(NAME, rows, work, case, after(lake / "checkpoints", settings["epochs_before"]))
    result.extra.update(written(spark, "benchmark", rows + before))
    return result


def kafka(spark: SparkSession, lake: Path, settings: dict[str, Any]) -> Result:
    """JSON events of a topic, so many an epoch, read with a schema."""
    from pyspark.sql import functions as f

    rows, topic = settings["rows"], settings["topic"]

    def run(table: str, **options: Any) -> None:
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", settings["brokers"])
        frame = source.option("subscribe", topic).options(**options).load()
        parsed = frame.select(f.from_json(f.col("value").cast("string"), settings["schema"]).alias("row"))
        stream(parsed.select("row.*"), table, lake)

    def work() -> dict[str, Any]:
        run("benchmark", startingOffsets="earliest", maxOffsetsPerTrigger=settings["rows_per_epoch"])
        return {}

    run("warm_up", startingOffsets=json.dumps({topic: settings["last"]}))
    started = after(lake / "checkpoints", settings["epochs_before"])
    result = measured(NAME, rows, work, settings["case"], started)
    result.extra.update(written(spark, "benchmark", rows + settings["before"]))
    return result


def first_epoch(spark: SparkSession, lake: Path, settings: dict[str, Any]) -> Result:
    """One epoch of a session that has done nothing yet; when it is there."""
    folder = settings["folder"]

    def work() -> dict[str, Any]:
        stream(spark.readStream.schema(spark.read.parquet(folder).schema).parquet(folder), "first", lake)
        return {"at": time.time()}

    return measured(NAME, settings["rows"], work)


def read(spark: SparkSession, lake: Path, settings: dict[str, Any]) -> Result:
    """All rows of a table that Volley has written, all columns."""
    frame = spark.table(f"volley.b.{settings['table']}")

    def work() -> dict[str, Any]:
        frame.write.format("noop").mode("overwrite").save()
        return {}

    frame.limit(1_000).write.format("noop").mode("overwrite").save()
    return measured(NAME, settings["rows"], work)


def merge(spark: SparkSession, lake: Path, settings: dict[str, Any]) -> Result:
    """Changes in a folder into a table that Volley has made, merge-on-read."""

    def run(table: str, folder: str) -> None:
        spark.read.parquet(f"{lake}/{folder}").createOrReplaceTempView("changes")
        spark.sql(
            f"merge into volley.b.{table} t using changes c on t.id = c.id "
            "when matched then update set * when not matched then insert *"
        )

    def work() -> dict[str, Any]:
        run("large", "many")
        return {}

    run("small", "few")
    return measured(NAME, settings["rows"], work)


def follow(spark: SparkSession, lake: Path, settings: dict[str, Any]) -> Result:
    """New files of a folder as they come, until a file says stop."""
    stop = Path(settings["stop"])
    frame = spark.readStream.schema(settings["schema"]).parquet(settings["folder"])

    def work() -> dict[str, Any]:
        create(frame, "followed")
        write = frame.writeStream.option("checkpointLocation", f"{lake}/checkpoints/followed")
        interval = f"{settings['interval']} seconds"
        query = write.trigger(processingTime=interval).toTable("volley.b.followed")
        while query.isActive and not stop.exists():
            time.sleep(0.05)
        query.stop()
        return {}

    return measured(NAME, 1, work)


_WORKS: dict[str, Callable[[SparkSession, Path, dict[str, Any]], Result]] = {
    "files": files,
    "kafka": kafka,
    "first_epoch": first_epoch,
    "read": read,
    "merge": merge,
    "follow": follow,
}


def main() -> None:
    """One work; prints its Result."""
    jars, name, given = sys.argv[1:]
    settings = json.loads(given)
    own = None if "lake" in settings else tempfile.mkdtemp(prefix="volley-bench-")
    lake = Path(own or settings["lake"])
    spark = session(jars, lake)
    try:
        spark.sql("create namespace if not exists volley.b")
        print_result(_WORKS[name](spark, lake, settings))
    finally:
        spark.stop()
        if own:
            shutil.rmtree(own)


if __name__ == "__main__":
    main()
