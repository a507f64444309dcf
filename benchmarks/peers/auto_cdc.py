"""AUTO CDC of pyspark's declarative pipelines: ``spark-pipelines run``, as its documentation shows it.

Its target must take row-level operations. No released connector for tables on disk loads on that Spark, so it is the
in-memory table of Spark's own tests: it is spared from writing files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.environment import PeerEnvironment
from benchmarks.run import Run

# Runs a function of this module in a Python that has its PySpark.
apart = PeerEnvironment(
    "auto-cdc",
    ("pyspark[pipelines]==4.3.0", "pandas==2.3.3"),
    # The tests of 4.3.0 are not published; those of 4.2.0 run on it.
    ("org.apache.spark:spark-catalyst_2.13:4.2.0:tests", "org.eclipse.jdt:ecj:3.38.0"),
).run

_SPEC = """
name: benchmark
storage: {folder}/storage
catalog: memory
database: d
libraries:
  - glob:
      include: definitions/**
configuration:
  spark.sql.shuffle.partitions: "2"
"""
# The sequence would be a tracked column of a history, whose rows have it as `__START_AT`.
_LEFT_OUT = {1: ["op"], 2: ["op", "date_time"]}
_DEFINITIONS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

spark = SparkSession.active()
schema = "auction long, bidder long, price long, url string, date_time timestamp, op string"


@dp.temporary_view
def bids():
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet("{files}")


dp.create_streaming_table("target")
dp.create_auto_cdc_flow(
    target="target",
    source="bids",
    keys=["auction", "bidder"],
    sequence_by="date_time",
    apply_as_deletes=expr("op = 'd'"),
    except_column_list={left_out},
    stored_as_scd_type={scd_type},
)
"""


def pipeline(run: Run) -> None:
    """Measure a run over the bids in the folder `files`, an epoch a file; the target's rows are in `rows_file` then.

    The option `scd_type` is 1 for the last bids, 2 for their history.
    """
    _add_catalog(run)
    folder, rows, scd_type = run.folder / "pipeline", run.options["rows_file"], run.options["scd_type"]
    (folder / "definitions").mkdir(parents=True)
    (folder / "spark-pipeline.yml").write_text(_SPEC.format(folder=folder.as_uri()))
    definitions = _DEFINITIONS.format(files=run.options["files"], left_out=_LEFT_OUT[scd_type], scd_type=scd_type)
    (folder / "definitions" / "bids.py").write_text(definitions)
    settings = {
        "spark.sql.catalog.memory": "MemoryCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
    }
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "--remote", "local[2]"]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    run.measure(lambda: _run([*command, "run"], folder, AUTO_CDC_ROWS=rows))


def _run(command: list[str], folder: Path, **variables: str) -> None:
    """Run a command in a folder, and show what it has said if it fails."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **variables}
    with (folder / "log").open("wb+") as log:
        if subprocess.run(command, stdout=log, stderr=log, cwd=folder, env=environment).returncode:
            log.seek(0)
            raise RuntimeError(log.read().decode())


def _add_catalog(run: Run) -> None:
    """Compile the catalog, and put it and its base beside this Spark's own jars."""
    import pyspark

    (compiler,) = (jar for jar in run.options["jars"] if "ecj" in jar)
    (tests,) = (jar for jar in run.options["jars"] if "catalyst" in jar)
    java = str(Path(os.environ["JAVA_HOME"], "bin", "java"))
    jars, source = Path(pyspark.__file__).parent / "jars", Path(__file__).with_name("MemoryCatalog.java")
    shutil.copy(tests, jars)
    classes, path = run.folder / "classes", os.pathsep.join(map(str, jars.glob("*.jar")))
    subprocess.run([java, "-jar", compiler, "-17", "-proc:none", "-cp", path, "-d", classes, source], check=True)
    shutil.move(shutil.make_archive(str(run.folder / "catalog"), "zip", classes), jars / "memory-catalog.jar")
