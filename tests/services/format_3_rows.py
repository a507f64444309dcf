"""Tables of format version 3 that have been written in every way, each with the rows that it has then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from tests.services.histories import commit
from tests.services.readers import Lake
from volley import (
    Environment,
    IcebergSink,
    IcebergSource,
    IcebergSourceConfig,
    MaterializedView,
    MemorySource,
    max_,
    tumbling,
)
from volley.iceberg import (
    History,
    IcebergTable,
    Overwrite,
    Partitioning,
    SchemaEvolution,
    SnapshotManager,
    Upsert,
    publish_branch,
    remove_orphan_files,
)
from volley.iceberg.modes import Strategy
from volley.stream.stream import DataStream

__all__ = ["FIRST", "GONE", "OF_ROWS", "QUERY", "Case", "Rows", "after", "filled"]

QUERY = "2b6f8a5e-0000-0000-0000-000000000000"

Rows = dict[int, Any]
"""The values of a table by the id of their row."""
GONE = object()
"""The value of a row that is deleted."""


@dataclass(frozen=True)
class Case:
    """A table with the columns ``id`` and ``value``.

    Args:
        name: What it has, for the page.
        fill: Makes a table of this name, and fills it.
        rows: The rows that it has then.
        by: What to select for the value by SQL, where not its name; by reader.
        shown: Makes of a value that a reader shows one that can be compared.
    """

    name: str
    fill: Callable[[Lake, str], None]
    rows: Rows
    by: Mapping[str, str] = field(default_factory=dict)
    shown: Callable[[Any], Any] = lambda value: value


def filled(
    lake: Lake,
    name: str,
    strategy: Strategy,
    *epochs: Rows,
    version: str = "3",
    buckets: int = 0,
    branch: str = "main",
) -> None:
    """Commit an epoch of upserts for each of some rows."""
    config = lake.config(name).with_commit_mode(Upsert(["id"], op_field="op", strategy=strategy))
    config = config.with_table_properties({"format-version": version}).with_branch(branch)
    if buckets:
        config = config.with_partitioning([Partitioning.bucket("id", n=buckets)])
    before = len(lake.table(name).snapshots()) if lake.catalog().table_exists(f"db.{name}") else 0
    for number, rows in enumerate(epochs, before):
        ops = {key: "d" if value is GONE else "u" for key, value in rows.items()}
        sent = [{"id": key, "value": None if op == "d" else rows[key], "op": op} for key, op in ops.items()]
        commit(config, QUERY, number, sent, _UPSERTS)


_UPSERTS = pa.schema({"id": pa.int64(), "value": pa.string(), "op": pa.string()})
FIRST: Rows = {number: f"v{number}" for number in range(20)}
_EPOCHS: tuple[Rows, ...] = (FIRST, {3: "w", 7: GONE, 20: "w"}, {3: "x", 8: GONE, 21: "x"})


def after(*epochs: Rows) -> Rows:
    rows = {key: value for epoch in epochs for key, value in epoch.items()}
    return {key: value for key, value in rows.items() if value is not GONE}


def _upgraded(lake: Lake, name: str) -> None:
    filled(lake, name, "merge_on_read", *_EPOCHS[:2], version="2")
    IcebergTable(lake.config(name).ref).upgrade(3)
    filled(lake, name, "merge_on_read", _EPOCHS[2])


def _compacted(lake: Lake, name: str) -> None:
    filled(lake, name, "merge_on_read", *_EPOCHS)
    IcebergTable(lake.config(name).ref).compact(rewrite_all=True, sort_by=["value desc"])


def _z_ordered(lake: Lake, name: str) -> None:
    filled(lake, name, "merge_on_read", *_EPOCHS)
    IcebergTable(lake.config(name).ref).compact(rewrite_all=True, z_order=["id", "value"])


def _rewritten(lake: Lake, name: str) -> None:
    """Manifests are merged, then rows copied again."""
    filled(lake, name, "merge_on_read", *_EPOCHS[:2])
    IcebergTable(lake.config(name).ref).rewrite_manifests()
    filled(lake, name, "copy_on_write", _EPOCHS[2])
    IcebergTable(lake.config(name).ref).rewrite_manifests()


def _rolled_back(lake: Lake, name: str) -> None:
    """An epoch is undone, another follows."""
    filled(lake, name, "merge_on_read", *_EPOCHS[:2])
    kept = IcebergTable(lake.config(name).ref).snapshots()[-1]
    filled(lake, name, "merge_on_read", {1: "undone", 5: GONE, 30: "undone"})
    SnapshotManager(lake.config(name).ref).rollback_to(kept.id)
    filled(lake, name, "merge_on_read", _EPOCHS[2])


def _published(lake: Lake, name: str) -> None:
    """Rows are written to a branch, which main then becomes."""
    filled(lake, name, "merge_on_read", *_EPOCHS[:2])
    config = lake.config(name)
    SnapshotManager(config.ref).create_branch("audit")
    filled(lake, name, "merge_on_read", _EPOCHS[2], branch="audit")
    publish_branch(config.with_branch("audit"))


def _evolved(lake: Lake, name: str) -> None:
    """Ids are stored in files, and a column is added and another renamed between."""
    filled(lake, name, "merge_on_read", *_EPOCHS[:2])
    config = lake.config(name)
    IcebergTable(config.ref).compact(rewrite_all=True)
    evolution = SchemaEvolution(config.ref.load().schema()).add("more", "string", default="m")
    evolution.rename("value", "old").rename("old", "value").apply(config.ref)
    filled(lake, name, "copy_on_write", _EPOCHS[2])


def _viewed(lake: Lake, name: str) -> None:
    """A view that is made, then refreshed by the changes of its table."""
    of = f"{name}_of"
    filled(lake, of, "merge_on_read", *_EPOCHS[:2])
    stream = Environment().from_source(IcebergSource(IcebergSourceConfig(lake.config(of).ref)))
    into = lake.config(name).with_table_properties({"format-version": "3"})
    view = MaterializedView(name, stream.filter("id >= 0").select("id", "value"), into)
    view.refresh()
    filled(lake, of, "merge_on_read", _EPOCHS[2])
    assert view.refresh("incremental").mode == "incremental"


def _deletes_merged(lake: Lake, name: str) -> None:
    """Position-delete files of before the upgrade become vectors."""
    filled(lake, name, "merge_on_read", *_EPOCHS, version="2")
    table = IcebergTable(lake.config(name).ref)
    table.upgrade(3)
    table.rewrite_position_deletes()


def _overwritten(lake: Lake, name: str) -> None:
    """A partition is replaced, then a row in it."""
    filled(lake, name, "merge_on_read", FIRST, buckets=3)
    config = lake.config(name).with_commit_mode(Overwrite())
    sent = [{"id": key, "value": value} for key, value in after(*_EPOCHS[:2]).items()]
    commit(config, QUERY, 1, sent, _UPSERTS.remove(2))
    filled(lake, name, "merge_on_read", _EPOCHS[2], buckets=3)


def _expired(lake: Lake, name: str) -> None:
    """Statistics are computed, and all that is not needed is removed."""
    filled(lake, name, "merge_on_read", *_EPOCHS)
    config = lake.config(name)
    IcebergTable(config.ref).compute_statistics()
    SnapshotManager(config.ref).expire_snapshots("0s", retain_last=1)
    remove_orphan_files(config, 0)


def _history(lake: Lake, name: str) -> None:
    """A version of a key ends, another begins; the column `id` tells them apart."""
    config = lake.config(name).with_table_properties({"format-version": "3"})
    config = config.with_commit_mode(History(["key"], sequence="id", strategy="merge_on_read"))
    schema = pa.schema({"id": pa.int64(), "key": pa.int64(), "value": pa.string()})
    for number, keys in enumerate((range(10), range(3))):
        rows = [{"id": 10 * number + key, "key": key, "value": f"v{number}"} for key in keys]
        commit(config, QUERY, number, rows, schema)


def _routed(lake: Lake, name: str) -> None:
    """A sink of many tables has made this one and another."""
    for number, epoch in enumerate(_EPOCHS):
        rows = [{"id": key, "value": None, "op": "d"} for key, value in epoch.items() if value is GONE]
        rows += [{"id": key, "value": value, "op": "u"} for key, value in epoch.items() if value is not GONE]
        sent = [{**row, "to": to} for row in rows for to in (name, f"{name}_other")]
        config = replace(lake.config(name), table="{to}").with_table_properties({"format-version": "3"})
        config = config.with_commit_mode(Upsert(["id"], op_field="op", strategy="merge_on_read"))
        source = MemorySource(pa.Table.from_pylist(sent, _UPSERTS.append(pa.field("to", pa.string()))))
        _job(lake, f"{name}_{number}", source).to_sink(IcebergSink(config).routed(omit=["to"])).execute("routed")


def _windowed(lake: Lake, name: str) -> None:
    """Rows of windows that later epochs change."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    sent = [{"id": key, "value": f"v{number}", "at": noon} for number in range(3) for key in range(5 - number)]
    rows = _job(lake, name, MemorySource(sent, rows_per_epoch=4)).key_by("id")
    windows = rows.window(tumbling("1 minute"), on="at", emit="updates").aggregate(value=max_("value"))
    config = lake.config(name).with_table_properties({"format-version": "3"})
    config = config.with_commit_mode(Upsert(["window_start", "window_end", "id"], strategy="merge_on_read"))
    windows.to_sink(IcebergSink(config)).execute("windows")


def _job(lake: Lake, name: str, source: MemorySource) -> DataStream:
    return Environment("local[2]", checkpoint_dir=str(lake.folder / f"checkpoints_{name}")).from_source(source)


OF_ROWS = [
    Case("appended and copied rows", lambda lake, name: filled(lake, name, "copy_on_write", *_EPOCHS), after(*_EPOCHS)),
    Case("deletion vectors", lambda lake, name: filled(lake, name, "merge_on_read", *_EPOCHS), after(*_EPOCHS)),
    Case(
        "deletion vectors of partitions",
        lambda lake, name: filled(lake, name, "merge_on_read", *_EPOCHS, buckets=3),
        after(*_EPOCHS),
    ),
    Case("compacted and sorted rows", _compacted, after(*_EPOCHS)),
    Case("rows in a z-order", _z_ordered, after(*_EPOCHS)),
    Case("rewritten manifests", _rewritten, after(*_EPOCHS)),
    Case("an epoch that was rolled back", _rolled_back, after(*_EPOCHS)),
    Case("a branch that was published", _published, after(*_EPOCHS)),
    Case("stored ids of rows that got another column", _evolved, after(*_EPOCHS)),
    Case("a view", _viewed, after(*_EPOCHS)),
    Case("rows of windows", _windowed, {0: "v2", 1: "v2", 2: "v2", 3: "v1", 4: "v0"}),
    Case("a table of a routed sink", _routed, after(*_EPOCHS)),
    Case(
        "versions of a history",
        _history,
        {**dict.fromkeys(range(10), "v0"), **dict.fromkeys(range(10, 13), "v1")},
    ),
    Case("overwritten rows", _overwritten, after(*_EPOCHS)),
    Case("statistics, and what is left after expiry", _expired, after(*_EPOCHS)),
    Case("an upgraded table, with position-delete files", _upgraded, after(*_EPOCHS)),
    Case("an upgraded table, whose deletes were merged", _deletes_merged, after(*_EPOCHS)),
]
