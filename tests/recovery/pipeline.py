"""The job that the recovery tests run, kill and start again: numbered rows into an Iceberg table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.sinks import config_of
from volley import (
    Environment,
    FileSource,
    IcebergSink,
    Job,
    KafkaSource,
    col,
    lit,
    when,
)
from volley.iceberg import Append, History, Overwrite, Upsert
from volley.iceberg.modes import CommitMode, KeyedMode

MODES: dict[str, CommitMode] = {
    "append": Append(),
    "overwrite": Overwrite(),
    "dynamic": Overwrite.dynamic(),
    "merge_on_read": Upsert("key", order_by="id", op_field="gone", strategy="merge_on_read"),
    "copy_on_write": Upsert("key", order_by="id", op_field="gone", strategy="copy_on_write"),
    "in_sequence": Upsert("key", sequence="id", op_field="gone"),
    "history": History("key", sequence="id", op_field="gone"),
    "partial": Upsert("key", sequence="id", op_field="gone", ignore_nulls=True),
}


def main(
    folder: Path,
    master: str = "local[2]",
    dead_letter: str | None = None,
    mode: str = "append",
    evolve: bool = False,
    kafka: Sequence[str] = (),
) -> Job:
    """One run: an epoch is one file, or 500 rows of a topic in Kafka, given by its brokers and name.

    Its task has closed one data file and has another open when it has all rows. With a dead letter, ids that end in 3
    are bad rows. An upsert has a key for several ids, and deletes every 11th id; rows of a partial one may lack their
    name. With `evolve` the table that is there
    has a column under another name, and one to drop.
    """
    config = config_of(folder).with_max_records(250).with_table_properties({"write.parquet.row-group-limit": "100"})
    if evolve:
        config = config.with_schema_evolution("full", renames={"label": "name"}, drops=["note"])
    twice = col("id") * 2
    if dead_letter:
        # Divided by zero, where it is a bad row.
        twice = twice + (lit(0) / (col("id") % 10 - 3)).cast("long")
    stream = (
        Environment(master, checkpoint_dir=str(folder / "checkpoints"))
        .from_source(_of_kafka(*kafka) if kafka else _of_files(folder))
        .filter_expr(col("id") % 7 != 0)
        .with_column("twice", twice)
    )
    if isinstance(MODES[mode], KeyedMode):
        stream = stream.with_column("key", col("id") % 300).with_column("gone", col("id") % 11 == 0)
    if mode == "partial":
        stream = stream.with_column("name", when(col("id") % 9 < 4).then(None).otherwise(col("name")))
    sink = IcebergSink(config.with_dead_letter(dead_letter).with_commit_mode(MODES[mode]))
    return stream.to_sink(sink).execute("recovery")


def _of_files(folder: Path) -> FileSource:
    return FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1)


def _of_kafka(brokers: str, topic: str) -> KafkaSource:
    source = KafkaSource(brokers, topic, schema="id long, name string", bounded=True, max_rows_per_epoch=500)
    return replace(source, min_rows_per_split=100, max_rows_per_split=200)


def write_orphans(folder: Path, *args: Any, **more: Any) -> None:
    """One run as of `main`, which writes the files that its dead attempts left to the file ``orphans``."""
    (folder / "orphans").write_text("\n".join(main(folder, *args, **more).orphans))
