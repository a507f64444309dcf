"""Runs the jobs of Iceberg's Spark runtime, in a Python that has PySpark 4.1 and in a warm session, as Volley's run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import after
from benchmarks.run import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["changes", "compact", "expire", "files", "first_epoch", "follow", "kafka", "merge", "read", "table"]

_WARM_UP_EPOCHS = 4
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Volley does with Spark's default of a gigabyte; for Parquet in the JVM that is too little.
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.volley": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.volley.type": "jdbc",
    "spark.sql.catalog.volley.jdbc.schema-version": "V1",
    # By default Spark starts a shell for each file of its log on a local disk: no part of the work.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def files(run: Run) -> None:
    """Parquet files, so many an epoch, through a filter."""
    rows, epochs_before = run.rows + run.options["before"], run.options["epochs_before"]
    with _session(run) as spark:

        def copy(table: str, folder: str, per_epoch: int) -> None:
            schema = spark.read.parquet(folder).schema
            frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", per_epoch).parquet(folder)
            _stream(frame.filter("id >= 0"), table, run.folder)

        copy("warm_up", run.options["warm_up"], _WARM_UP_EPOCHS)
        figures = run.measure(
            lambda: copy("benchmark", run.options["folder"], run.options["files_per_epoch"]),
            start=after(run.folder / "checkpoints", epochs_before),
        )
        figures.update(_written(spark, "benchmark", rows))


def table(run: Run) -> None:
    """A table that Volley has written, so many files an epoch, from its second snapshot on."""
    per_epoch = run.options["files_per_epoch"]
    with _session(run) as spark:

        def copy(name: str, source: str) -> None:
            reader = spark.readStream.format("iceberg").option("streaming-max-files-per-micro-batch", per_epoch)
            # The lake is shared by all runs.
            spark.sql(f"drop table if exists volley.b.{name}")
            _stream(reader.load(f"volley.b.{source}"), name, run.folder)

        copy("warm_up", "small")
        figures = run.measure(
            lambda: copy("benchmark", "t"), start=after(run.folder / "checkpoints", run.options["epochs_before"])
        )
        figures.update(_written(spark, "benchmark", run.rows + run.options["before"]))


def kafka(run: Run) -> None:
    """JSON events of a topic, so many an epoch, read with a schema."""
    from pyspark.sql import functions as f

    rows, epochs_before = run.rows + run.options["before"], run.options["epochs_before"]
    topic, schema = run.options["topic"], run.options["schema"]
    with _session(run) as spark:

        def copy(table: str, **options: Any) -> None:
            source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", run.options["brokers"])
            frame = source.option("subscribe", topic).options(**options).load()
            parsed = frame.select(f.from_json(f.col("value").cast("string"), schema).alias("row"))
            _stream(parsed.select("row.*"), table, run.folder)

        copy("warm_up", startingOffsets=json.dumps({topic: run.options["last"]}))
        figures = run.measure(
            lambda: copy("benchmark", startingOffsets="earliest", maxOffsetsPerTrigger=run.options["rows_per_epoch"]),
            start=after(run.folder / "checkpoints", epochs_before),
        )
        figures.update(_written(spark, "benchmark", rows))


def first_epoch(run: Run) -> None:
    """One epoch of a new session; records when it is committed."""
    folder = run.options["folder"]
    with _session(run) as spark:
        _stream(spark.readStream.schema(spark.read.parquet(folder).schema).parquet(folder), "first", run.folder)
        run.record(at=time.time())


def read(run: Run) -> None:
    """All rows of a table that Volley has written, all columns."""
    with _session(run) as spark:
        frame = spark.table("volley.b.t")
        frame.limit(1_000).write.format("noop").mode("overwrite").save()
        run.measure(lambda: frame.write.format("noop").mode("overwrite").save())


def changes(run: Run) -> None:
    """The changelog view of a copy-on-write table that Volley has written."""
    keys, start, rows = run.options["keys"], run.options["start"], run.options["rows"]
    identifiers = f", identifier_columns => array('{keys}')" if keys else ""
    with _session(run) as spark:

        def read(first: int, last: int | None) -> None:
            bounds = {"start-snapshot-id": first, **({"end-snapshot-id": last} if last else {})}
            options = ", ".join(f"'{name}', '{value}'" for name, value in bounds.items())
            spark.sql(
                "call volley.system.create_changelog_view(table => 'b.copy_on_write', changelog_view => 'changes', "
                f"options => map({options}){identifiers})"
            )
            # A count would leave out the columns.
            frame = spark.table("changes")
            frame.write.format("noop").mode("overwrite").save()

        read(run.options["first"], start)
        run.measure(lambda: read(start, None), rows=rows, case=run.options["case"])


def compact(run: Run) -> None:
    """The small files of a table that Volley has written."""
    _maintain(run, f"rewrite_data_files(options => map('target-file-size-bytes', '{run.options['target']}'), ")


def expire(run: Run) -> None:
    """The snapshots of a table before the last ones."""
    keep = run.options["keep"]
    _maintain(run, f"expire_snapshots(older_than => current_timestamp(), retain_last => {keep}, ")


def _maintain(run: Run, procedure: str) -> None:
    """Measure a procedure on a table, after it has warmed up on a small one.

    Args:
        run: The run.
        procedure: The call, up to its last argument, the table.
    """
    with _session(run) as spark:

        def call(table: str) -> None:
            spark.sql(f"call volley.system.{procedure}table => 'b.{table}')").collect()

        call("small")
        run.measure(lambda: call("t"), rows=run.options["rows"])


def merge(run: Run) -> None:
    """Changes in a folder into a table that Volley has made, merge-on-read."""
    with _session(run) as spark:

        def upsert(table: str, folder: str) -> None:
            spark.read.parquet(f"{run.options['lake']}/{folder}").createOrReplaceTempView("changes")
            spark.sql(
                f"merge into volley.b.{table} t using changes c on t.id = c.id "
                "when matched then update set * when not matched then insert *"
            )

        upsert("small", "few")
        run.measure(lambda: upsert("large", "many"), rows=run.options["keys"])


def follow(run: Run) -> None:
    """New files of a folder as they come, until a file says stop."""
    stop = Path(run.options["stop"])
    with _session(run) as spark:
        frame = spark.readStream.schema(run.options["schema"]).parquet(run.options["folder"])

        def work() -> None:
            _create(frame, "followed")
            write = frame.writeStream.option("checkpointLocation", f"{run.options['lake']}/checkpoints/followed")
            interval = f"{run.options['interval']} seconds"
            query = write.trigger(processingTime=interval).toTable("volley.b.followed")
            while query.isActive and not stop.exists():
                time.sleep(0.05)
            query.stop()

        run.measure(work, rows=1)


@contextmanager
def _session(run: Run) -> Iterator[SparkSession]:
    """A session whose catalog lies in the lake, by default the run's own folder."""
    from pyspark.sql import SparkSession

    lake = run.options.get("lake", run.folder)
    own = {"uri": f"jdbc:sqlite:{lake}/catalog.db", "warehouse": f"file://{lake}"}
    settings = {**_SETTINGS, **{f"spark.sql.catalog.volley.{name}": own[name] for name in own}}
    builder = SparkSession.builder.master("local[*]").config(map={**settings, "spark.jars": run.options["jars"]})
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        spark.sql("create namespace if not exists volley.b")
        yield spark
    finally:
        spark.stop()


def _stream(frame: DataFrame, table: str, lake: Path) -> None:
    """Copy all that is there now into a new table."""
    _create(frame, table)
    write = frame.writeStream.outputMode("append").option("checkpointLocation", f"{lake}/checkpoints/{table}")
    write.trigger(availableNow=True).toTable(f"volley.b.{table}").awaitTermination()


def _create(frame: DataFrame, table: str) -> None:
    """A table with the frame's columns, compressed as Volley's."""
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema)
    properties = "'format-version'='2', 'write.parquet.compression-codec'='snappy'"
    frame.sparkSession.sql(f"create table volley.b.{table} ({columns}) using iceberg tblproperties ({properties})")


def _written(spark: SparkSession, table: str, rows: int) -> dict[str, Any]:
    """Epochs and files, after a look that all rows are there."""
    found = spark.sql(f"select summary from volley.b.{table}.snapshots order by committed_at").collect()
    last = found[-1].summary
    assert int(last["total-records"]) == rows, f"{last['total-records']} rows in the table, not {rows}"
    return {"epochs": len(found), "files": int(last["total-data-files"]), "mb": int(last["total-files-size"]) / 1e6}
