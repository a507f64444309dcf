"""Columns that tell an upsert what to do keep their roles through the steps of a stream."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from volley import ConfigError, Environment, IcebergSinkConfig, IcebergStorage, MemorySource, col
from volley.columns.roles import ChangeColumns
from volley.columns.schemas import Schemas
from volley.iceberg import Upsert
from volley.iceberg.upsert.columns import with_own_columns
from volley.stream.stream import DataStream

COLUMNS = ChangeColumns(("tenant", "id"), "_seq", "_op", "_unchanged")
SCHEMA = COLUMNS.noted(
    pa.schema(
        {
            **{"id": pa.int64(), "tenant": pa.string(), "total": pa.float64()},
            **{"_op": pa.string(), "_seq": pa.int64(), "_unchanged": pa.list_(pa.string())},
        }
    )
)
STREAM = Environment().from_source(MemorySource([{"id": 1}], name="rows"))


def after(stream: DataStream) -> ChangeColumns:
    schema = Schemas(lambda read: SCHEMA).of(stream._node)
    assert schema is not None
    return ChangeColumns.of(schema)


def mode_for(mode: Upsert, schema: pa.Schema) -> Any:
    storage = IcebergStorage.Local("/tmp/lake")
    config = IcebergSinkConfig(namespace="db", table="t", storage=storage, commit_mode=mode)
    return with_own_columns(config, schema).commit_mode


def test_steps_keep_them() -> None:
    assert after(STREAM.filter(col("id") > 1).with_column("more", col("total") * 2).drop("total")) == COLUMNS
    renamed = after(STREAM.rename({"id": "order_id", "_seq": "n"}))
    assert renamed == ChangeColumns(("tenant", "order_id"), "n", "_op", "_unchanged")
    selected = after(STREAM.select(col("id").alias("nr"), "tenant", (col("total") + 1).alias("_op")))
    assert selected == ChangeColumns(("tenant", "nr"))


def test_a_key_that_is_gone_or_computed_leaves_no_keys() -> None:
    assert after(STREAM.drop("tenant")).keys == ()
    assert after(STREAM.with_column("id", col("id") + 1)).keys == ()


def test_an_upsert_takes_what_it_does_not_name() -> None:
    assert mode_for(Upsert(), SCHEMA) == Upsert.of_changes(["tenant", "id"])
    assert mode_for(Upsert.of_changes(), SCHEMA) == Upsert.of_changes(["tenant", "id"])
    assert mode_for(Upsert(["id"], strategy="copy_on_write"), SCHEMA) == Upsert.of_changes(["id"], "copy_on_write")
    assert mode_for(Upsert(["id"], order_by="total"), SCHEMA).write_order
    plain = pa.schema({"id": pa.int64()})
    assert mode_for(Upsert(["id"]), plain) == Upsert(["id"])
    with pytest.raises(ConfigError, match="the stream tells none"):
        mode_for(Upsert(), plain)
