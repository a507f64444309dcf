"""The Iceberg source's settings in documents."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, TypeVar

from pydantic import Field, create_model

from volley.documents.collector import Collector
from volley.documents.mistakes import Path
from volley.documents.models import Model, Span, Time, Whole, given, model_of
from volley.iceberg.documents.tables import TableDocument, table_of

__all__ = ["source_config", "source_model"]

C = TypeVar("C")
_OF_TABLE = frozenset({"catalog_uri", "storage", "warehouse", *TableDocument.model_fields})
_OTHERWISE = _OF_TABLE | {"mode", "partition_filter"}
_MODES = {
    "batch": frozenset[str](),
    "snapshot": frozenset({"snapshot_id"}),
    "incremental": frozenset({"poll_interval", "start_snapshot", "start_timestamp"}),
}


class _SourceDocument(TableDocument):
    """What the source's settings look like in a document, where that is not as in Python."""

    mode: Literal["batch", "snapshot", "incremental"] = Field(
        "batch", description="What to read: the current snapshot, the snapshot of snapshot_id, or each new one."
    )
    snapshot_id: Whole | None = Field(None, description="For snapshot: its id.")
    poll_interval: Span | None = Field(None, description="For incremental: how often to ask for new snapshots.")
    start_snapshot: Whole | None = Field(None, description="For incremental: read only what was added after it.")
    start_timestamp: Time | None = Field(None, description="For incremental: read only what was added after it.")
    partition_filter: str | None = Field(None, description="SQL: read only the rows for which it is true.")


@cache
def source_model(settings: Any) -> type[Model]:
    """Return the model of the source's settings in a document.

    Args:
        settings: `IcebergSourceConfig`.
    """
    same = model_of(settings, _OTHERWISE)
    definitions: dict[str, Any] = {name: (field.annotation, field) for name, field in same.model_fields.items()}
    return create_model(
        settings.__name__, __base__=_SourceDocument, __doc__="The settings of the Iceberg source.", **definitions
    )


def source_config(
    settings: type[C], modes: dict[str, Any], values: Any, collector: Collector, path: Path = ()
) -> C | None:
    """Return the settings of a source; None if the document has mistakes.

    Args:
        settings: `IcebergSourceConfig`.
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
