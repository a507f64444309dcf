"""Views of tables of format version 3, and their changes, have defaults in nested columns and variants, by value."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.upserts.lake import Lake
from volley import Environment, Insert, MaterializedView, SchemaEvolution, Update, Upsert, changes_between
from volley.iceberg import IcebergSinkConfig, IcebergSource, IcebergSourceConfig, IcebergTable

_INNER = pa.struct({"a": pa.int64()})
_SCHEMA = pa.schema({"id": pa.int64(), "inner": _INNER, "items": pa.list_(_INNER), "by": pa.map_(pa.string(), _INNER)})


def _sent(key: int, a: int, **more: Any) -> dict[str, Any]:
    return {"id": key, "inner": {"a": a}, "items": [{"a": a}, None], "by": [("k", {"a": a})], **more}


def _seen(key: int, a: int, v: str | None) -> dict[str, Any]:
    item = {"a": a, "b": "q"}
    return {"id": key, "inner": item, "items": [item, None], "by": [("k", item)], "v": v}


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.select(["id", "inner", "items", "by", "v"]).sort_by("id").to_pylist()
    return rows


def test_views_and_changes_have_nested_defaults_and_variants(tmp_path: Path) -> None:
    with closing(Lake(tmp_path, Upsert("id"), _SCHEMA, **{"format-version": "3"})) as lake:
        lake.epoch([_sent(1, 1), _sent(2, 1)])
        evolution = SchemaEvolution(lake.table().schema()).add("v", "variant")
        for path in ("inner", "items.element", "by.value"):
            evolution = evolution.add(f"{path}.b", "string", default="q")
        evolution.apply(lake.config.ref)
        stream = Environment().from_source(IcebergSource(IcebergSourceConfig(lake.config.ref)))
        into = IcebergSinkConfig.from_table(lake.config.ref.beside("view"))
        view = MaterializedView("view", stream.filter("id > 0").select("id", "inner", "items", "by", "v"), into)
        view.refresh()
        assert _rows(into.ref.load().scan().to_arrow()) == [_seen(1, 1, None), _seen(2, 1, None)]
        start = IcebergTable(lake.config.ref).snapshots()[-1].id
        lake.schema = _SCHEMA.append(pa.field("v", pa.string()))
        lake.epoch([_sent(2, 2, v='{"n": [1.50, null]}'), _sent(3, 3, v="7")])
        after = [_seen(2, 2, '{"n":[1.50,null]}'), _seen(3, 3, "7")]
        assert view.refresh("incremental").mode == "incremental"
        assert _rows(into.ref.load().scan().to_arrow()) == [_seen(1, 1, None), *after]
        changes = sorted(changes_between(lake.config.ref, start), key=lambda change: type(change).__name__)
        assert changes == [Insert(after[1]), Update(_seen(2, 1, None), after[0])]
