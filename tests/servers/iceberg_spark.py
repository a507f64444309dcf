"""Spark with Iceberg's own runtime, on tables in a SQLite catalog."""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

from tests.servers import iceberg_spark_program
from tests.servers.downloads import artifact, other_version
from tests.servers.process import ServerProcess

# Iceberg's runtime is built for this Spark, not for the one Volley runs on.
_PYSPARK = "4.1.4"
_JARS = {
    "iceberg-spark-1.12.0": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0:jar",
    "sqlite-jdbc-3.50.3.0": "org.xerial:sqlite-jdbc:3.50.3.0:jar",
}


class IcebergSpark:
    """A process that answers requests, also several at a time.

    Args:
        folder: Where its socket and its log are.
    """

    def __init__(self, folder: Path) -> None:
        self._address = str(folder / "socket")
        jars = ",".join(str(jar) for name, where in _JARS.items() for jar in artifact(name, where).glob("*.jar"))
        own = {"PYTHONPATH": str(other_version("pyspark", _PYSPARK)), "PYSPARK_PYTHON": sys.executable, "TZ": "UTC"}
        others = dict.fromkeys(name for name in os.environ if name.startswith(("COVERAGE", "SPARK")))
        command = [sys.executable, iceberg_spark_program.__file__, jars, self._address]
        self._process = ServerProcess("Iceberg's Spark", command, folder / "log", {**others, **own})

    def start(self) -> IcebergSpark:
        self._process.start(self._process.says(iceberg_spark_program.READY))
        return self

    def stop(self) -> None:
        self._process.stop()

    def sql(self, catalog: Path, *queries: str | dict[str, Any]) -> list[list[dict[str, Any]]]:
        """The rows of each query on a catalog.

        Args:
            catalog: The catalog's file, in the folder with its tables.
            queries: SQL, or the arguments of `commit_rows`, whose rows are none.
        """
        with Client(self._address) as connection:
            connection.send((str(catalog), *queries))
            found: list[list[dict[str, Any]]] | str = connection.recv()
        assert not isinstance(found, str), found
        return found
