"""The names of datasets, beside those that OpenLineage's own helpers make, which follow its specification."""

from __future__ import annotations

from typing import Any

import pytest
from openlineage.client.naming import dataset as naming

from volley import Dataset, FileSink, FileSource, KafkaSink, KafkaSource, MemorySource, PostgresSource, RateSource

POSTGRES: dict[str, Any] = {
    **{"host": "db.example.com", "database": "shop", "user": "volley", "password": "hunter2hunter2"},
    **{"slot_name": "volley", "publication": "volley"},
}
KAFKA = KafkaSource("kafka-1:9092,kafka-2:9092", ["orders", "items"], schema="id long")


@pytest.mark.parametrize(
    ("datasets", "known"),
    [
        (FileSource("/data/in", format="json").datasets(), naming.LocalFileSystem("/data/in")),
        (FileSource("/data/in/*/part-*.json").datasets(), naming.LocalFileSystem("/data/in")),
        (FileSource("file:///data/in.json").datasets(), naming.LocalFileSystem("/data/in.json")),
        (FileSink("s3://lake/out/", format="parquet").datasets(), naming.S3("lake", "out")),
        (FileSink("s3a://lake/a/b", format="parquet").datasets(), naming.S3("lake", "a/b")),
        (FileSink("gs://lake/out", format="parquet").datasets(), naming.GCS("lake", "out")),
        (
            FileSink("abfss://box@acme.dfs.core.windows.net/out", format="parquet").datasets(),
            naming.ABFSS("box", "acme", "/out"),
        ),
        (FileSink("hdfs://name:8020/out", format="parquet").datasets(), naming.HDFS("name", "8020", "/out")),
        (KAFKA.datasets()[:1], naming.Kafka("kafka-1", "9092", "orders")),
        (KAFKA.datasets()[1:], naming.Kafka("kafka-1", "9092", "items")),
        (KafkaSink("kafka-1:9092", "out").datasets(), naming.Kafka("kafka-1", "9092", "out")),
        (
            PostgresSource(**POSTGRES, tables="public.orders").datasets(),
            naming.Postgres("db.example.com", "5432", "shop", "public", "orders"),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_name_is_the_one_of_the_specification(datasets: list[Dataset], known: naming.DatasetNaming) -> None:
    (dataset,) = datasets
    assert (dataset.namespace, dataset.name) == (known.get_namespace(), known.get_name())


def test_several_tables() -> None:
    names = [dataset.name for dataset in PostgresSource(**POSTGRES, tables=["public.a", "sales.*"]).datasets()]
    assert names == ["shop.public.a", "shop.sales.*"]
    assert [dataset.name for dataset in PostgresSource(**POSTGRES).datasets()] == ["shop.*.*"]


def test_what_the_specification_does_not_name_has_its_own_name() -> None:
    assert MemorySource([{"id": 1}], name="orders").datasets() == [Dataset("volley", "memory:orders")]
    assert RateSource(5).datasets() == [Dataset("volley", "rate:5")]


def test_no_name_has_a_secret() -> None:
    dataset = Dataset.of_path("https://bot:hunter2hunter2@files.example.com/in.json?token=hunter2hunter2")
    assert "hunter2" not in repr(dataset)
    assert "hunter2" not in repr(PostgresSource(**POSTGRES, tables="public.orders").datasets())
