"""Iceberg's own Spark runtime, on the Spark it is built for: jobs in a warm session, as Volley's run."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import after
from benchmarks.peers.environment import PeerEnvironment
from benchmarks.run import Run

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_ENVIRONMENT = PeerEnvironment(
    "pyspark",
    ("pyspark==4.1.4",),
    (
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "org.xerial:sqlite-jdbc:3.50.3.0",
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.1",
        "org.apache.spark:spark-avro_2.13:4.1.1",
    ),
)
_PROTOBUF = (*_ENVIRONMENT.jars, "org.apache.spark:spark-protobuf_2.13:4.1.4")
# Each runs a function of this module in a Python that has its PySpark; where Maven lacks the jar that `protobuf` needs,
# the others still run.
apart = _ENVIRONMENT.run
apart_with_protobuf = replace(_ENVIRONMENT, jars=_PROTOBUF).run

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
    spark = session(run)

    def frame(folder: str, per_epoch: int) -> DataFrame:
        reader = spark.readStream.schema(spark.read.parquet(folder).schema).option("maxFilesPerTrigger", per_epoch)
        return reader.parquet(folder).filter("id >= 0")

    warm_up, folder, per_epoch = (run.options[name] for name in ("warm_up", "folder", "files_per_epoch"))
    _copy(run, spark, lambda: frame(warm_up, _WARM_UP_EPOCHS), lambda: frame(folder, per_epoch))


def table(run: Run) -> None:
    """A table that Volley has written, so many files an epoch, from its second snapshot on."""
    spark = session(run)
    reader = spark.readStream.format("iceberg")
    reader = reader.option("streaming-max-files-per-micro-batch", run.options["files_per_epoch"])
    # The lake is shared by all runs.
    for name in ("warm_up", "benchmark"):
        spark.sql(f"drop table if exists volley.b.{name}")
    _copy(run, spark, lambda: reader.load("volley.b.small"), lambda: reader.load("volley.b.t"))


def kafka(run: Run) -> None:
    """JSON events of a topic, so many an epoch, read with a schema."""
    from pyspark.sql import functions as f

    schema = run.options["schema"]
    _messages(run, lambda value: f.from_json(value.cast("string"), schema))


def avro(run: Run) -> None:
    """Avro events of a topic, so many an epoch, read with a schema behind the five bytes that name it."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    schema = run.options["schema"]
    _messages(run, lambda value: from_avro(f.expr("substring(value, 6)"), schema))


def protobuf(run: Run) -> None:
    """Protobuf events of a topic, so many an epoch, behind the six bytes that name the schema and its first message."""
    from pyspark.sql import functions as f
    from pyspark.sql.protobuf.functions import from_protobuf

    files, name = base64.b64decode(run.options["files"]), run.options["message"]
    # Zeros are not in a message: without the option they become NULL.
    options = {"emit.default.values": "true"}
    _messages(run, lambda _: from_protobuf(f.expr("substring(value, 7)"), name, None, options, files))


def _messages(run: Run, row: Callable[[Column], Column]) -> None:
    """Copy what `row` makes of the messages of a topic into a table."""
    from pyspark.sql import functions as f

    topic, rows = run.options["topic"], run.options["rows_per_epoch"]
    spark = session(run)

    def frame(**options: Any) -> DataFrame:
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", run.options["brokers"])
        values = source.option("subscribe", topic).options(**options).load()
        return values.select(row(f.col("value")).alias("row")).select("row.*")

    warm_up = {"startingOffsets": json.dumps({topic: run.options["last"]})}
    whole = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": rows}
    _copy(run, spark, lambda: frame(**warm_up), lambda: frame(**whole))


def first_epoch(run: Run) -> None:
    """One epoch of a new session; records when it is committed."""
    spark, folder = session(run), run.options["folder"]
    stream(spark.readStream.schema(spark.read.parquet(folder).schema).parquet(folder), "first", run.folder)
    run.record(at=time.time())


def frames(run: Run) -> None:
    """All files of a folder in one epoch, in the format of the case, through a filter."""
    spark, folder = session(run), run.options["files"]
    schema = spark.read.parquet(folder if run.case == "parquet" else run.options["types"]).schema
    reader = spark.readStream.schema(schema).option("header", True)
    stream(reader.format(str(run.case)).load(folder).filter("quantity > 0"), "frames", run.folder)


def read(run: Run) -> None:
    """All rows of a table that Volley has written, all columns."""
    frame = session(run).table("volley.b.t")
    _read(frame.limit(1_000))
    run.measure(lambda: _read(frame))


def sql(run: Run) -> None:
    """A statement on tables that Volley has written, after its `warm_up`; also all rows of the `view` that it makes."""
    spark = session(run)

    def execute(statement: str) -> None:
        spark.sql(statement).collect()
        if view := run.options.get("view"):
            _read(spark.table(view))

    execute(run.options["warm_up"])
    run.measure(lambda: execute(run.options["statement"]))


def follow(run: Run) -> None:
    """New files of a folder as they come, until a file says stop."""
    lake, interval = Path(run.options["lake"]), run.options["interval"]
    frame = session(run).readStream.schema(run.options["schema"]).parquet(f"{lake}/in")

    def work() -> None:
        query = _writer(frame, "followed", lake).trigger(processingTime=f"{interval} seconds")
        running = query.toTable("volley.b.followed")
        while running.isActive and not (lake / "stop").exists():
            time.sleep(0.05)
        running.stop()

    run.measure(work, rows=1)


def session(run: Run) -> SparkSession:
    """A session whose catalog lies in the lake, by default the run's own folder; it ends with the process."""
    from pyspark.sql import SparkSession

    lake, catalog = run.options.get("lake", run.folder), "spark.sql.catalog.volley"
    own = {f"{catalog}.uri": f"jdbc:sqlite:{lake}/catalog.db", f"{catalog}.warehouse": f"file://{lake}"}
    settings: dict[str, Any] = {**_SETTINGS, **own, "spark.jars": ",".join(run.options["jars"])}
    spark = SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.sql("create namespace if not exists volley.b")
    return spark


def _copy(run: Run, spark: SparkSession, warm_up: Callable[[], DataFrame], frame: Callable[[], DataFrame]) -> None:
    """Measure a stream into a table, from the epoch on that follows the rows before; add its epochs and files."""
    before, per_epoch = run.options["before"], run.options["rows_per_epoch"]
    stream(warm_up(), "warm_up", run.folder)
    start = after(run.folder / "checkpoints", before // per_epoch)
    figures = run.measure(lambda: stream(frame(), "benchmark", run.folder), start=start)
    epochs = spark.sql("select summary from volley.b.benchmark.snapshots order by committed_at").collect()
    rows, files, size = (int(epochs[-1].summary[f"total-{name}"]) for name in ("records", "data-files", "files-size"))
    assert rows == run.rows + before, f"{rows} rows in the table, not {run.rows + before}"
    figures.update(epochs=len(epochs), files=files, mb=size / 1e6)


def _read(frame: DataFrame) -> None:
    """Read all rows and all columns, which a count would leave out."""
    frame.write.format("noop").mode("overwrite").save()


def stream(frame: DataFrame, table: str, lake: Path) -> None:
    """Copy all that is there now into a new table."""
    _writer(frame, table, lake).trigger(availableNow=True).toTable(f"volley.b.{table}").awaitTermination()


def _writer(frame: DataFrame, table: str, lake: Path | str) -> DataStreamWriter:
    """Make a table with the frame's columns, compressed as Volley's; return what writes into it."""
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema)
    properties = "'format-version'='2', 'write.parquet.compression-codec'='snappy'"
    frame.sparkSession.sql(f"create table volley.b.{table} ({columns}) using iceberg tblproperties ({properties})")
    return frame.writeStream.outputMode("append").option("checkpointLocation", f"{lake}/checkpoints/{table}")
