#!/usr/bin/env bash
# PySpark 4.3.0: the first call of a JVM's method with a value loads PySpark's own test helpers, and pandas with them.
#
# A converter of numpy arrays asks pyspark.testing.utils whether numpy is there. That module imports unittest, pandas and,
# if there, protobuf, and looks for some twenty packages. A driver that never touches pandas pays a quarter of a second of
# CPU for it at its start. Setting a string in a SparkConf is such a call.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pandas==2.3.3 numpy pyarrow==26.0.1
"$folder/venv/bin/python" - 2> "$folder/log" <<'PYTHON'
import sys

from pyspark import SparkConf, SparkContext

MODULES = ("pyspark.testing.utils", "unittest", "pandas")


def loaded() -> list[str]:
    return [name for name in MODULES if name in sys.modules]


seen = [loaded()]
SparkContext._ensure_initialized()
seen.append(loaded())
SparkConf().set("spark.app.name", "a")
seen.append(loaded())
for when, names in zip(("imported", "with a JVM", "after a setting"), seen, strict=True):
    print(f"{when}: {', '.join(names) or 'none'}")
assert seen == [[], [], list(MODULES)], "the behaviour has changed"
PYTHON
