"""Reads Kafka: asks the cluster how far each partition goes, cuts what is new into splits, and reads those as rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from volley.bad_rows import BadRow, PositionedBatch
from volley.connectors.kafka.cluster import Cluster, check_ends, check_ids
from volley.connectors.kafka.columns import UNKNOWN
from volley.connectors.kafka.metadata import metadata_fields
from volley.connectors.kafka.offsets import Partition, Range, as_offset, offsets_of, ranges_between, shared, splits_of
from volley.connectors.kafka.rows import RowReader
from volley.errors import ConfigError
from volley.formats import json as json_format
from volley.formats.avro import AvroValues
from volley.formats.messages import Decoder, JsonValues, PlainValues
from volley.formats.schema_registry import Registry
from volley.source import Offset, Reader
from volley.types.arrow import arrow_schema, canonical_schema

__all__ = ["KafkaReader", "RowReader", "avro_decoder", "beginning", "columns", "plain_decoder"]


@dataclass(frozen=True)
class KafkaReader(Reader):
    """Reads the topics of a cluster.

    Args:
        cluster: The cluster, and which of its topics.
        rows: Reads splits.
        schema: The columns.
        initial: Where a new job starts.
        parallelism: How many splits are read at the same time.
        min_rows_per_split: The fewest offsets of a split, if there are as many.
        max_rows_per_split: The most offsets of a split.
        limit: The most offsets of one epoch; None = all there is.
    """

    cluster: Cluster
    rows: RowReader
    schema: pa.Schema
    initial: Offset
    parallelism: int
    min_rows_per_split: int
    max_rows_per_split: int
    limit: int | None

    def initial_offset(self) -> Offset:
        return self.initial

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        if target is not None:
            ends, ids = offsets_of(target), target["ids"]
        else:
            partitions, ids = self.cluster.partitions()
            check_ids(ids, start["ids"])
            ends = self.cluster.latest(partitions)
            check_ends(offsets_of(start), ends)
        begins = self._begins(offsets_of(start), ends, limit)
        shares = shared({each: max(0, end - begins[each]) for each, end in ends.items()}, limit)
        return as_offset({each: begins[each] + share for each, share in shares.items()}, ids)

    def splits(self, start: Offset, end: Offset) -> list[list[Range]]:
        # An epoch that is repeated after a crash does not pass latest_offset.
        check_ids(self.cluster.partitions()[1], end["ids"])
        ranges = ranges_between(start, end)
        return splits_of(ranges, self.parallelism, self.min_rows_per_split, self.max_rows_per_split)

    def read(self, split: list[Range]) -> Iterator[pa.RecordBatch]:
        return self.rows.read(split)

    def read_tolerant(self, split: list[Range]) -> Iterator[PositionedBatch | BadRow]:
        return self.rows.read_tolerant(split)

    def committed(self, offset: Offset) -> None:
        self.cluster.publish(offset)

    def _begins(
        self, start: Mapping[Partition, int], ends: Mapping[Partition, int], limit: int | None
    ) -> dict[Partition, int]:
        """Where each partition's next messages are: a new one begins at 0; what is lost takes no part of a limit."""
        skipping = limit is not None and self.rows.skip_lost
        first = self.cluster.earliest(ends) if skipping else {}
        return {each: max(start.get(each, 0), first.get(each, 0)) for each in ends}


def beginning(cluster: Cluster, start: str | Mapping[str, Mapping[int, int]], since: datetime | None) -> Offset:
    """Where a new job starts.

    Args:
        cluster: The cluster, and which of its topics.
        start: ``"earliest"``, ``"latest"``, or offsets by topic and partition.
        since: Instead of that a time.

    Raises:
        ConfigError: If a partition is named that a topic does not have.
        SourceError: If the cluster does not answer.
    """
    partitions, ids = cluster.partitions()
    if since is not None:
        return as_offset(cluster.since(partitions, round(since.timestamp() * 1000)), ids)
    if start == "latest":
        return as_offset(cluster.latest(partitions), ids)
    given = start if isinstance(start, Mapping) else {}
    named = {Partition(topic, number): at for topic, offsets in given.items() for number, at in offsets.items()}
    if unknown := sorted(named.keys() - set(partitions)):
        raise ConfigError(
            f"starting_offsets name partition {unknown[0].number} of topic {unknown[0].topic!r}, which it has not",
            hint=f"it has {sum(each.topic == unknown[0].topic for each in partitions)} partitions, counted from 0",
        )
    return as_offset({**cluster.earliest(partitions), **named}, ids)


def plain_decoder(value_format: str, schema: Any, on_unknown: str) -> Decoder:
    """What makes columns of values in JSON, text or bytes.

    Args:
        value_format: ``"json"``, ``"string"`` or ``"raw"``.
        schema: The columns of JSON.
        on_unknown: What to do about fields of JSON that the schema lacks.

    Raises:
        ConfigError: If JSON can't be read into a column.
    """
    if value_format != "json":
        return PlainValues(text=value_format == "string")
    fields = canonical_schema(arrow_schema(schema))
    json_format.check(fields)
    return JsonValues(fields, on_unknown, UNKNOWN)


def avro_decoder(schema: str, registry: Registry | None) -> Decoder:
    """What makes columns of values in Avro.

    Args:
        schema: The schema to read into, as JSON.
        registry: Where the schemas are that messages were written with; None = all were written with this one.
    """
    return AvroValues(schema, registry)


def columns(values: Decoder, include: Sequence[str]) -> pa.Schema:
    """The columns of the values, and behind them those about the message."""
    return pa.schema([*values.schema, *metadata_fields(include)])
