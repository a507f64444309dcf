"""Spark with Iceberg's own runtime, as a process: told a table of a SQLite catalog, it prints what it reads, pickled.

Run as ``python iceberg_spark.py JARS``, by a Python that has PySpark 4.1. A line of its input is ``CATALOG TABLE``.
"""

from __future__ import annotations

import base64
import pickle
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(jars: str) -> None:
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": jars,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    try:
        for line in sys.stdin:
            found = read(spark.newSession(), *line.split())
            print("FOUND " + base64.b64encode(pickle.dumps(found)).decode(), flush=True)
    finally:
        spark.stop()


def read(session: SparkSession, catalog: str, table: str) -> dict[str, Any]:
    """The rows of a table, and how many snapshots it has."""
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalog.volley.type": "jdbc",
        "spark.sql.catalog.volley.uri": f"jdbc:sqlite:{catalog}",
        "spark.sql.catalog.volley.jdbc.schema-version": "V1",
        "spark.sql.catalog.volley.warehouse": "file:///tmp/unused",
        "spark.sql.catalog.volley": "org.apache.iceberg.spark.SparkCatalog",
    }
    for name, value in settings.items():
        session.conf.set(name, value)
    rows = session.table(f"volley.{table}").collect()
    snapshots = session.table(f"volley.{table}.snapshots").count()
    return {"rows": [row.asDict(recursive=True) for row in rows], "snapshots": snapshots}


if __name__ == "__main__":
    main(sys.argv[1])
