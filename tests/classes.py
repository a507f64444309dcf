"""Makes an archive of the classes that a job loads, from which the tests' JVMs start in half the CPU time.

This is class data sharing: https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from volley.spark.java import AT_ITS_ADDRESS

ARCHIVE = Path(sys.prefix) / "classes.jsa"

# Each test's JVM lives for seconds: compiling less, and collecting with one thread, halves what it costs.
# The sessions of all tests live for minutes, and compile almost the 48 MB of code that Java keeps by default.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=96m"


def java_options() -> str:
    """Options for a JVM of the tests. One that has other classes or another Java passes over the archive."""
    archive = [f"-XX:SharedArchiveFile={ARCHIVE}", *AT_ITS_ADDRESS, "-Xlog:cds*=off"] if ARCHIVE.exists() else []
    return " ".join([_SHORT_LIVED, *archive])


def main() -> None:
    """Run a job on each path in a JVM that writes its classes down when it ends."""
    os.environ["JAVA_TOOL_OPTIONS"] = _SHORT_LIVED
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={ARCHIVE}"
    from pyspark import SparkContext

    from volley import Environment, MemorySink, MemorySource, RateSource, col

    with TemporaryDirectory() as folder:
        environment = Environment("local[2]", checkpoint_dir=folder)
        rows = environment.from_source(MemorySource([{"id": 1}])).with_column("twice", col("id") * 2)
        rows.to_sink(MemorySink("rows")).execute("rows")
        # A query of Spark's, and Python workers.
        environment.from_source(RateSource(1)).map(dict).to_sink(MemorySink("query")).execute("query", once=True)
    SparkContext.getOrCreate().stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    assert gateway.proc.wait() == 0
    assert ARCHIVE.exists()


if __name__ == "__main__":
    main()
