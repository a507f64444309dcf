"""The process of `IcebergSpark`: told queries on a SQLite catalog, it sends their rows.

Run as ``python iceberg_spark_program.py JARS SOCKET``, by a Python that has PySpark 4.1. A request on the socket is the
catalog's file, then the queries: each is a string with SQL, or a dictionary with the arguments of `commit_rows` or of
`add_column`. The answer is the rows of each query, or a string with the stack trace of an error.
"""

from __future__ import annotations

import json
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READY = "ready for queries"


def main(jars: str, address: str) -> None:
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": jars,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        # A query reads a few rows: generated code, new plans and 200 partitions would cost more than they save.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        # For partition fields in ALTER TABLE.
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }
    spark = SparkSession.builder.master("local[2]").config(map={**settings}).getOrCreate()
    with Listener(address, backlog=16) as listener:
        print(READY, flush=True)
        while True:
            Thread(target=answer, args=(listener.accept(), spark), daemon=True).start()


def answer(connection: Connection, spark: SparkSession) -> None:
    """Answer one request in a session of its own."""
    # A test that was killed takes no answer.
    with connection, suppress(EOFError, OSError):
        request = connection.recv()
        try:
            answered: Any = rows(spark.newSession(), *request)
        except Exception:
            answered = traceback.format_exc()
        connection.send(answered)


def rows(session: SparkSession, catalog: str, *queries: str | dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The rows of each query; none of a commit."""
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalog.volley.type": "jdbc",
        "spark.sql.catalog.volley.uri": f"jdbc:sqlite:{catalog}",
        "spark.sql.catalog.volley.jdbc.schema-version": "V1",
        "spark.sql.catalog.volley.warehouse": f"file://{Path(catalog).parent}",
        "spark.sql.catalog.volley": "org.apache.iceberg.spark.SparkCatalog",
    }
    for name, value in settings.items():
        session.conf.set(name, value)
    return [
        [row.asDict(recursive=True) for row in session.sql(query).collect()]
        if isinstance(query, str)
        else (add_column if "default" in query else commit_rows)(session, **query)
        for query in queries
    ]


def add_column(
    session: SparkSession, table: str, parent: str | None, name: str, kind: str, default: Any, required: bool
) -> list[dict[str, Any]]:
    """Add a column with a default by Iceberg's Java library; Spark's SQL gives none.

    Args:
        session: Has the catalog.
        table: The table's name, with the catalog's.
        parent: The struct that it becomes a field of.
        kind: The name of its type in the table's metadata.
        default: As JSON has it in the metadata.
    """
    jvm = session.sparkContext._gateway.jvm  # type: ignore[union-attr]
    iceberg = jvm.org.apache.iceberg
    data_type = iceberg.types.Types.fromPrimitiveString(kind)
    value = iceberg.SingleValueParser.fromJson(data_type, json.dumps(default))
    literal = iceberg.expressions.Expressions.lit(value).to(data_type)
    update = _loaded(session, table).updateSchema()
    add = update.addRequiredColumn if required else update.addColumn
    (add(name, data_type, literal) if parent is None else add(parent, name, data_type, literal)).commit()
    return []


def _loaded(session: SparkSession, table: str) -> Any:
    jvm = session.sparkContext._gateway.jvm  # type: ignore[union-attr]
    # Iceberg asks the active session for its catalogs.
    jvm.SparkSession.setActiveSession(session._jsparkSession)
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, table)
    loaded.refresh()
    return loaded


def commit_rows(
    session: SparkSession,
    table: str,
    deleted: list[dict[str, Any]],
    added: list[dict[str, Any]],
    partition: str | None,
    form: str,
) -> list[dict[str, Any]]:
    """Commit an equality-delete file and a data file in one snapshot, by the classes of Iceberg's Java library.

    Spark's SQL writes no equality deletes.

    Args:
        session: Has the catalog.
        table: The table's name, with the catalog's.
        deleted: The keys of the deleted rows; the columns of the first one are the columns that are compared.
        added: The rows of the data file; without any there is no data file.
        partition: Where both files are, as `city=Rome`; None is a partition spec without partitions.
        form: The format of both files: `PARQUET`, `ORC` or `AVRO`.
    """
    gateway: Any = session.sparkContext._gateway
    jvm = gateway.jvm
    iceberg = jvm.org.apache.iceberg
    loaded = _loaded(session, table)
    columns = loaded.schema().select(jvm.java.util.ArrayList(list(deleted[0])))
    ids = gateway.new_array(jvm.int, len(deleted[0]))
    for number, name in enumerate(deleted[0]):
        ids[number] = loaded.schema().findField(name).fieldId()
    files_format = iceberg.FileFormat.valueOf(form)
    builder = getattr(iceberg.data, "GenericFileWriterFactory$Builder")(loaded)
    builder.dataFileFormat(files_format).deleteFileFormat(files_format).dataSchema(loaded.schema())
    factory = builder.equalityFieldIds(ids).equalityDeleteRowSchema(columns).build()
    spec = loaded.spec()
    if partition is None:
        spec = next(spec for spec in loaded.specs().values() if spec.isUnpartitioned())
    values = None if partition is None else iceberg.DataFiles.data(spec, partition)
    files = iceberg.io.OutputFileFactory.builderFor(loaded, 1, 1).format(files_format).build()
    delta = loaded.newRowDelta()
    deletes = factory.newEqualityDeleteWriter(files.newOutputFile(spec, values), spec, values)
    delta.addDeletes(_written(iceberg, deletes, columns, deleted).toDeleteFile())
    if added:
        data = factory.newDataWriter(files.newOutputFile(spec, values), spec, values)
        delta.addRows(_written(iceberg, data, loaded.schema(), added).toDataFile())
    delta.commit()
    return []


def _written(iceberg: Any, writer: Any, schema: Any, records: list[dict[str, Any]]) -> Any:
    """Write all records of a file and close its writer, which is returned.

    Java parses the values: a long that comes from Python is an integer there if it is small.
    """
    times = {"timestamp_ns": "timestampFromNanos", "timestamptz_ns": "timestamptzFromNanos"}
    for values in records:
        by_id = {schema.findField(name).fieldId(): value for name, value in values.items()}
        record = iceberg.SingleValueParser.fromJson(schema.asStruct(), json.dumps(by_id))
        for number, field in enumerate(schema.columns()):
            # The writer takes objects for them, the parser makes numbers.
            if convert := times.get(str(field.type())):
                record.set(number, getattr(iceberg.util.DateTimeUtil, convert)(record.get(number)))
        writer.write(record)
    writer.close()
    return writer


if __name__ == "__main__":
    main(*sys.argv[1:])
