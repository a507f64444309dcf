"""Parquet as Java writes it, and pyarrow does not."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from volley import FileSource, SourceContext

SCHEMA = "message m { optional binary money (DECIMAL(9,2)); optional binary kind (UTF8); }"


@pytest.fixture
def file(spark: SparkSession, tmp_path: Path) -> Path:
    """Decimals as bytes, with a dictionary: what Avro's writer of Parquet makes of them."""
    path, jvm = tmp_path / "money.parquet", spark.sparkContext._jvm
    assert jvm is not None
    parquet: Any = jvm.org.apache.parquet
    schema = parquet.schema.MessageTypeParser.parseMessageType(SCHEMA)
    output = parquet.hadoop.util.HadoopOutputFile.fromPath(
        jvm.org.apache.hadoop.fs.Path(str(path)), jvm.org.apache.hadoop.conf.Configuration()
    )
    writer = parquet.hadoop.example.ExampleParquetWriter.builder(output).withType(schema).build()
    groups = parquet.example.data.simple.SimpleGroupFactory(schema)
    for number in range(100):
        unscaled = parquet.io.api.Binary.fromConstantByteArray((number % 2 * 1000 - 1).to_bytes(4, "big", signed=True))
        writer.write(groups.newGroup().append("money", unscaled).append("kind", f"k{number % 2}"))
    writer.close()
    return path


@pytest.mark.parametrize("dictionaries", [False, True])
def test_decimals_as_bytes(file: Path, tmp_path: Path, dictionaries: bool) -> None:
    context = SourceContext(str(tmp_path / "state"), dictionaries=dictionaries)
    source = FileSource(file, schema="money decimal(9,2), kind string").open(context)
    start = source.initial_offset()
    splits = source.splits(start, source.latest_offset(start, None, None))
    rows = [row for split in splits for batch in source.read(split) for row in batch.to_pylist()]
    assert rows == [
        {"money": Decimal(["-0.01", "9.99"][number % 2]), "kind": f"k{number % 2}"} for number in range(100)
    ]
