"""Spark with Iceberg's own runtime, as a process: reads tables through the SQLite catalog and prints rows pickled.

Run as ``python iceberg_spark.py CATALOG_FILE JARS QUERY…``, by a Python that has PySpark 4.1.
"""

from __future__ import annotations

import base64
import pickle
import sys


def main(catalog: str, jars: str, *queries: str) -> None:
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": jars,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalog.volley": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.volley.type": "jdbc",
        "spark.sql.catalog.volley.uri": f"jdbc:sqlite:{catalog}",
        "spark.sql.catalog.volley.jdbc.schema-version": "V1",
        "spark.sql.catalog.volley.warehouse": "file:///tmp/unused",
    }
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    try:
        found = [[row.asDict(recursive=True) for row in spark.sql(query).collect()] for query in queries]
        print("FOUND " + base64.b64encode(pickle.dumps(found)).decode())
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
