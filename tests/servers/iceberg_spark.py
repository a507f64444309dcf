"""Spark with Iceberg's own runtime, as a process: told queries on a SQLite catalog, it prints their rows, pickled.

Run as ``python iceberg_spark.py JARS``, by a Python that has PySpark 4.1. A line of its input is a list in JSON: the
catalog's file, then the queries.
"""

from __future__ import annotations

import base64
import json
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
        # For partition fields in ALTER TABLE.
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }
    spark = SparkSession.builder.master("local[1]").config(map={**settings}).getOrCreate()
    try:
        for line in sys.stdin:
            found = rows(spark.newSession(), *json.loads(line))
            print("FOUND " + base64.b64encode(pickle.dumps(found)).decode(), flush=True)
    finally:
        spark.stop()


def rows(session: SparkSession, catalog: str, *queries: str) -> list[list[dict[str, Any]]]:
    """The rows of each query."""
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
    return [[row.asDict(recursive=True) for row in session.sql(query).collect()] for query in queries]


if __name__ == "__main__":
    main(sys.argv[1])
