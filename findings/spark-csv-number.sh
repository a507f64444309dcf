#!/usr/bin/env bash
# Spark 4.3.0: the CSV reader and CAST read the same number otherwise (needs Java 17 or later).
#
# A blank beside a whole number or a decimal makes it null, beside a double it does no harm; CAST takes all three. nan and
# inf in lower case are null in the reader and numbers in CAST. Both take Java's 1d and 0x1p3 for doubles, and 0x10 for none.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0
unset SPARK_HOME
"$folder/venv/bin/python" - "$folder" 2> "$folder/log" <<'PYTHON' || { cat "$folder/log"; exit 1; }
import sys
from pathlib import Path

from pyspark.errors import NumberFormatException
from pyspark.sql import SparkSession

file = Path(sys.argv[1]) / "numbers.csv"
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()


def read(text: str, kind: str) -> str:
    file.write_text(f"{text},1\n")
    return str(spark.read.schema(f"x {kind}, y INT").csv(str(file)).collect()[0].x)


def cast(text: str, kind: str) -> str:
    try:
        return str(spark.sql(f"SELECT CAST('{text}' AS {kind}) AS x").collect()[0].x)
    except NumberFormatException:
        return "error"


expected = {
    (" 7", "INT"): ("None", "7"),
    (" 7", "DECIMAL(9, 2)"): ("None", "7.00"),
    (" 7", "DOUBLE"): ("7.0", "7.0"),
    ("nan", "DOUBLE"): ("None", "nan"),
    ("-inf", "DOUBLE"): ("None", "-inf"),
    ("1d", "DOUBLE"): ("1.0", "1.0"),
    ("0x1p3", "DOUBLE"): ("8.0", "8.0"),
    ("0x10", "DOUBLE"): ("None", "error"),
}
for (text, kind), result in expected.items():
    seen = (read(text, kind), cast(text, kind))
    print(f"{text!r} as {kind}: reader {seen[0]}, CAST {seen[1]}")
    assert seen == result, "the behaviour has changed"
PYTHON
