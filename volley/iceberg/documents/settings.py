"""The settings of Iceberg sinks and sources in documents."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import Field

from volley.documents.collector import Collector
from volley.documents.mistakes import Path, nearest
from volley.documents.models import Model, Names, Span, Time, Whole, given, model_of
from volley.iceberg.catalogs.values import without_nones
from volley.iceberg.documents.tables import TableDocument, table_of
from volley.iceberg.layout.partitioning import Granularity, Partitioning, Transform
from volley.iceberg.modes import Append, CommitMode, History, Maintenance, Overwrite, Strategy, Upsert
from volley.iceberg.storage.values import LocalStorage
from volley.iceberg.table import TableRef
from volley.plan.sql import sql

__all__ = ["sink_config", "sink_model", "source_config", "source_model"]

C = TypeVar("C")
_OF_TABLE = frozenset({"catalog_uri", "storage", "warehouse", *TableDocument.model_fields})
_MODES = {
    "batch": frozenset[str](),
    "snapshot": frozenset({"snapshot_id"}),
    "incremental": frozenset({"poll_interval", "start_snapshot", "start_timestamp"}),
}


class _SourceDocument(TableDocument):
    """The settings of the Iceberg source."""

    mode: Literal["batch", "snapshot", "incremental"] = Field(
        "batch", description="What to read: the current snapshot, the snapshot of snapshot_id, or each new one."
    )
    snapshot_id: Whole | None = Field(None, description="For snapshot: its id.")
    poll_interval: Span | None = Field(None, description="For incremental: how often to ask for new snapshots.")
    start_snapshot: Whole | None = Field(None, description="For incremental: read only what was added after it.")
    start_timestamp: Time | None = Field(None, description="For incremental: read only what was added after it.")
    partition_filter: str | None = Field(None, description="SQL: read only the rows for which it is true.")


def source_model(settings: Any) -> type[Model]:
    """Return the model of the source's settings, `IcebergSourceConfig`, in a document."""
    return model_of(settings, _OF_TABLE | {"mode", "partition_filter"}, _SourceDocument)


def source_config(
    settings: type[C], modes: dict[str, Any], values: Any, collector: Collector, path: Path = ()
) -> C | None:
    """Return the settings of a source; None if the document has mistakes.

    Args:
        modes: The class of each mode, by its name.
    """
    any_settings: Any = settings
    document: Any = collector.check(source_model(any_settings), values, path)
    if document is None:
        return None
    table = table_of(document, collector, path)
    mode = _mode(document, modes, collector, path)
    if table is None or collector.has_mistakes(path):
        return None
    ours = set(_SourceDocument.model_fields) - {"partition_filter"}
    same = {name: value for name, value in given(document).items() if name not in ours}
    return collector.make(settings, {"table": table, **same, "mode": mode}, path)


def _mode(document: Any, modes: dict[str, Any], collector: Collector, path: Path) -> Any:
    settings = {name: value for name, value in given(document).items() if name in frozenset.union(*_MODES.values())}
    for name in set(settings) - _MODES[document.mode]:
        owner = next(mode for mode, names in _MODES.items() if name in names)
        collector.add((*path, name), f"{name} is for mode {owner}, not {document.mode}", "leave it out", of_key=True)
    if document.mode == "snapshot" and "snapshot_id" not in settings:
        collector.add(
            (*path, "snapshot_id"), "snapshot_id is missing: mode snapshot needs it", "snapshot_id: 3051729675574597004"
        )
        return None
    return collector.make(modes[document.mode], {n: v for n, v in settings.items() if n in _MODES[document.mode]}, path)


if TYPE_CHECKING:
    _Maintenance = Model
else:
    _Maintenance = model_of(Maintenance)

# Fields of IcebergSinkConfig that documents write in another way.
_OTHERWISE = _OF_TABLE | {"credential", "token", "partitioning", "commit_mode", "maintenance"}
_ANY_TABLE = TableRef("any", "any", LocalStorage("any"))
# The settings of each strategy, and its arguments for them.
_STRATEGIES: dict[str, dict[str, str]] = {
    "none": {},
    "table_default": {},
    "identity": {"partition_fields": ""},
    "bucket": {"partition_fields": "", "num_buckets": "n"},
    "truncate": {"partition_fields": "", "truncate_width": "width"},
    "time": {"partition_fields": "", "time_granularity": "granularity"},
}
_PARTITION_SETTINGS = ("partition_fields", "num_buckets", "truncate_width", "time_granularity")
_TRANSFORM = re.compile(r"(\w+)(?:\[(\d+)\])?\((.+)\)")


class _SinkDocument(TableDocument):
    """The settings of the Iceberg sink."""

    flush_interval_secs: Whole | None = Field(None, description="The same as flush_interval, in seconds.")
    tuning: Literal["low_latency", "balanced", "high_throughput"] | None = Field(
        None,
        description="Sets batch_size, flush_interval and target_file_size_mb at once; each may be given beside it.",
    )
    partitioning: Names | None = Field(
        None,
        description="The partitioning of a new table: none, table_default (the default), identity, bucket, truncate or"
        ' time of partition_fields; or a list such as ["day(at)", "bucket[16](user_id)"].',
    )
    partition_fields: Names | None = Field(None, description="The columns to partition by.")
    num_buckets: Whole | None = Field(None, description="The number of buckets, for bucket; 16 by default.")
    truncate_width: Whole | None = Field(None, description="The length to truncate to, for truncate.")
    time_granularity: Granularity | None = Field(None, description="For time; day by default.")
    commit_mode: Literal["append", "overwrite", "upsert", "history"] = Field(
        "append", description="How the rows of an epoch change the table."
    )
    overwrite_partitions: Literal["touched"] | list[dict[str, Any]] | None = Field(
        None,
        description="What overwrite replaces: the partitions that a run has rows for (touched), or a list of named"
        " ones ([{country: NO}]). Without it, the whole table.",
    )
    key_fields: Names | None = Field(
        None,
        description="For upsert and history: the columns that identify a row; for postgres, its primary key is the"
        " default.",
    )
    order_by: str | None = Field(
        None,
        description="For upsert: of rows with the same keys, the one with the highest wins; postgres has its own.",
    )
    sequence: Names | None = Field(
        None,
        description="For upsert and history: the columns, or SQL expressions, that tell which of two rows of a key is"
        " the later one, in whatever epoch they come.",
    )
    tombstones: Span | None = Field(
        None,
        description="For upsert by sequence and history: how long deletions, and whatever else the table does not show,"
        " are remembered; without it, for ever.",
    )
    op_field: str | None = Field(
        None,
        description="For upsert and history: the column that says what to do: d or delete deletes; postgres has its"
        " own.",
    )
    unchanged_field: str | None = Field(
        None,
        description="For upsert: the column with the names of the columns that a row leaves as they are; for history:"
        " that it leaves out, which is an error; postgres has its own.",
    )
    ignore_nulls: bool | Names | None = Field(
        None, description="For upsert: true = nulls keep the values that are stored, or those of some columns do."
    )
    update_columns: Names | None = Field(
        None, description="For upsert: the columns that are replaced if the key is there; a new row is written whole."
    )
    track: Names | None = Field(
        None,
        description="For history: the columns that make a new version when they change; without it, all but the keys"
        " and the sequence.",
    )
    valid_from: str | None = Field(None, description="For history: the name of the column; valid_from by default.")
    valid_to: str | None = Field(None, description="For history: the name of the column; valid_to by default.")
    is_current: str | None = Field(None, description="For history: the name of the column; is_current by default.")
    write_order: bool | None = Field(None, description="For upsert: false = the column of order_by is not written.")
    strategy: Strategy | None = Field(None, description="For upsert and history: merge_on_read, copy_on_write or auto.")
    maintenance: bool | _Maintenance | None = Field(
        None, description="How the job keeps the table in shape while it writes it: true, or settings."
    )


_KEYED = ("key_fields", "sequence", "tombstones", "op_field", "strategy")
# The modes with settings of their own: what makes each, and the settings.
_KEYED_MODES: dict[str, tuple[type[Upsert | History], tuple[str, ...]]] = {
    "upsert": (Upsert, (*_KEYED, "order_by", "write_order", "unchanged_field", "ignore_nulls", "update_columns")),
    "history": (History, (*_KEYED, "unchanged_field", "track", "valid_from", "valid_to", "is_current")),
}


def sink_model(settings: Any) -> type[Model]:
    """Return the model of the sink's settings, `IcebergSinkConfig`, in a document."""
    return model_of(settings, _OTHERWISE, _SinkDocument)


def sink_config(settings: type[C], values: Any, collector: Collector, path: Path = ()) -> C | None:
    """Return the settings of a sink, `IcebergSinkConfig`; None if the document has mistakes."""
    any_settings: Any = settings
    document: Any = collector.check(sink_model(any_settings), values, path)
    if document is None:
        return None
    same = {name: value for name, value in given(document).items() if name not in _SinkDocument.model_fields}
    arguments = {
        **same,
        **_flush_interval(document, collector, path),
        **_partitioning(document, collector, path),
        **_commit_mode(document, collector, path),
        **_maintenance(document, collector, path),
    }
    # With another table in its place the rest can be checked.
    empty: Any = any_settings.from_table(table_of(document, collector, path) or _ANY_TABLE)
    names = {"flush_interval": "flush_interval_secs"} if document.flush_interval_secs is not None else {}
    config: Any = collector.make(partial(replace, empty), arguments, path, names)
    if config is None or collector.has_mistakes(path):
        return None
    if document.tuning is not None:
        beside = {name: value for name, value in arguments.items() if name in same or name == "flush_interval"}
        config = replace(config.with_tuning(document.tuning), **beside)
    result: C = config
    return result


def _flush_interval(document: Any, collector: Collector, path: Path) -> dict[str, Any]:
    if document.flush_interval_secs is None:
        return {}
    if document.flush_interval is not None:
        collector.add(
            (*path, "flush_interval"),
            "flush_interval and flush_interval_secs are both given",
            "leave one out",
            of_key=True,
        )
    return {"flush_interval": document.flush_interval_secs}


def _partitioning(document: Any, collector: Collector, path: Path) -> dict[str, Any]:
    listed = document.partitioning or ["table_default"]
    place, is_strategy = (*path, "partitioning"), len(listed) == 1 and "(" not in listed[0]
    if is_strategy and listed[0] not in _STRATEGIES:
        collector.add(place, f"partitioning {listed[0]!r} is unknown", nearest(listed[0], tuple(_STRATEGIES)))
        return {}
    own = _STRATEGIES[listed[0]] if is_strategy else {}
    settings = {name: value for name in _PARTITION_SETTINGS if (value := getattr(document, name)) is not None}
    if others := [name for name in settings if name not in own]:
        for name in others:
            users = " or ".join(strategy for strategy, names in _STRATEGIES.items() if name in names)
            text = f"{name} is for partitioning {users}, not {', '.join(listed)}"
            collector.add((*path, name), text, f"partitioning: {users.split()[0]}, or leave it out", of_key=True)
        return {}
    if not is_strategy:
        return _transforms(listed, collector, place)
    fields = settings.pop("partition_fields", [])
    options = {own[name]: value for name, value in settings.items()}
    build: Any = getattr(Partitioning, listed[0])
    return without_nones(partitioning=collector.make(lambda **rest: build(*fields, **rest), options, place))


def _transforms(listed: list[str], collector: Collector, path: Path) -> dict[str, Any]:
    """Return the partitioning of a list of transforms."""
    matches = [_TRANSFORM.fullmatch(text.strip()) for text in listed]
    if not all(matches):
        collector.add(path, f"partitioning {listed!r} is no list of transforms", '["day(at)", "bucket[16](user_id)"]')
        return {}
    transforms = [match.groups() for match in matches if match]

    def combine() -> Partitioning:
        return Partitioning(
            tuple(Transform(name, field, None if width is None else int(width)) for name, width, field in transforms)
        )

    return without_nones(partitioning=collector.make(combine, {}, path))


def _keyed(mode: type[Upsert | History], sequence: list[str] | None = None, **settings: Any) -> Upsert | History:
    """Return the mode of settings, in which a sequence that is no plain name of a column is SQL."""
    if sequence is None:
        return mode(**settings)
    return mode(**settings, sequence=[text if text.isidentifier() else sql(text) for text in sequence])


def _commit_mode(document: Any, collector: Collector, path: Path) -> dict[str, Any]:
    users: dict[str, list[str]] = {}
    for mode, (_, names) in _KEYED_MODES.items():
        for name in names:
            users.setdefault(name, []).append(mode)
    settings = {name: getattr(document, name) for name in users if getattr(document, name) is not None}
    for name in settings:
        if document.commit_mode not in users[name]:
            text = f"{name} is for commit_mode {' or '.join(users[name])}, not {document.commit_mode}"
            collector.add((*path, name), text, "leave it out", of_key=True)
    if document.overwrite_partitions is not None and document.commit_mode != "overwrite":
        collector.add((*path, "overwrite_partitions"), "overwrite_partitions is for commit_mode overwrite", None, True)
    if document.commit_mode in _KEYED_MODES:
        allowed = {name: settings[name] for name in settings if document.commit_mode in users[name]}
        build = partial(_keyed, _KEYED_MODES[document.commit_mode][0])
        return without_nones(commit_mode=collector.make(build, allowed, path))
    otherwise: CommitMode | None = Append()
    if document.commit_mode == "overwrite":
        otherwise = _overwrite(document.overwrite_partitions, collector, (*path, "overwrite_partitions"))
    return without_nones(commit_mode=otherwise)


def _overwrite(partitions: Any, collector: Collector, path: Path) -> CommitMode | None:
    if partitions is None:
        return Overwrite()
    if partitions == "touched":
        return Overwrite.dynamic()
    return collector.make(lambda: Overwrite.partitions(*partitions), {}, path)


def _maintenance(document: Any, collector: Collector, path: Path) -> dict[str, Any]:
    settings = document.maintenance
    if isinstance(settings, Model):
        return without_nones(maintenance=collector.make(Maintenance, given(settings), (*path, "maintenance")))
    return {"maintenance": Maintenance() if settings else None}
