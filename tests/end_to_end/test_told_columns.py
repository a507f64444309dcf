"""Tables whose columns are those of the schemas in Debezium's messages, changed in flight."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from volley import ConfigError, Environment, FileSource, IcebergSink, IcebergSinkConfig, Upsert, WebhookSource
from volley.formats.contract import Contract

DECIMAL = "org.apache.kafka.connect.data.Decimal"
ID = {"field": "id", "type": "int32", "optional": False}
PAID = {"field": "paid", "type": "bytes", "optional": True, "name": DECIMAL, "parameters": {"scale": "2"}}
NOTE = {"field": "note", "type": "string", "optional": True}


def message(lsn: int, fields: list[dict[str, Any]], op: str, row: dict[str, Any], table: str = "t") -> str:
    struct = {"type": "struct", "fields": fields, "optional": True}
    schema = {"type": "struct", "fields": [{**struct, "field": "before"}, {**struct, "field": "after"}]}
    source = {"connector": "postgresql", "snapshot": "false", "table": table}
    source["sequence"] = json.dumps(["1", str(lsn)])
    places = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({"schema": schema, "payload": {"op": op, **places, "source": source}})


def test_columns_come_from_messages_and_a_changed_schema_changes_the_table(
    environment: Environment, config: IcebergSinkConfig, load: Callable[[], Table], tmp_path: Path
) -> None:
    folder = tmp_path / "changes"
    folder.mkdir()
    files = [
        [message(1, [ID, PAID], "c", {"id": 1, "paid": "AeI6"}), message(2, [ID, PAID], "c", {"id": 2, "paid": None})],
        [message(3, [ID, PAID, NOTE], "u", {"id": 2, "paid": "AA==", "note": "new"})],
        [message(4, [{**ID, "type": "int64"}, NOTE], "c", {"id": 2**40, "note": "no paid"})],
        [message(5, [ID], "d", {"id": 1})],
    ]
    source = FileSource(
        folder, format="debezium", schema="infer", options={"key_fields": ["id"]}, max_files_per_epoch=1
    )
    sink = IcebergSink(config.with_commit_mode(Upsert()).with_schema_evolution("full"))
    # Each file is a run of its own, or an epoch of a run.
    for number, lines in enumerate(files):
        (folder / f"{number}.json").write_text("\n".join(lines))
        if number != 1:
            environment.from_source(source).to_sink(sink).execute("told")
    rows = sorted(load().scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["paid"], row["note"]) for row in rows] == [
        (2, Decimal("0.00"), "new"),
        (2**40, None, "no paid"),
    ]
    schema = load().scan().to_arrow().schema
    assert (schema.field("id").type, schema.field("paid").type) == (pa.int64(), pa.decimal128(38, 2))


@pytest.mark.parametrize(
    ("fault", "settings"),
    [
        ("declares no column", {"on_unknown": "rescue"}),
        ("a change has all values of its row", {"on_unknown": Contract()}),
        ("declares no column", {"on_unknown": "drop"}),
        ("is for JSON, not for maxwell", {"format": "maxwell"}),
        ("key_fields names 'id'", {"schema": "name string", "options": {"key_fields": ["id"]}}),
        ("'_op' is there twice", {"schema": "_op string", "on_unknown": "evolve"}),
    ],
)
def test_what_can_not_be_inferred_is_refused(fault: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=fault):
        FileSource("changes", **{"format": "debezium", "schema": "infer", **settings})


def test_a_webhook_does_not_reject_what_later_schemas_tell() -> None:
    with pytest.raises(ConfigError, match="a body would be bad when it was answered"):
        WebhookSource(8080, value_format="debezium", schema="infer")
    WebhookSource(8080, value_format="debezium", schema="infer", on_bad="dead_letter")
