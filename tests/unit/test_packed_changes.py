"""Changes of many tables by Debezium: the rows of each are packed, with the columns that its schema tells."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.end_to_end.test_told_columns import ID, NOTE, PAID, message
from volley import ConfigError, FileSource
from volley.columns.roles import ChangeColumns
from volley.formats.change_options import ChangeOptions
from volley.formats.changes.packed import PackedChanges
from volley.formats.framing import Keyed
from volley.formats.packed_rows import unpack_rows
from volley.formats.rows import Sorted

LINE = {"field": "line", "type": "int32", "optional": False}


def read(values: list[Any], **options: Any) -> Sorted:
    columns = pa.schema([("rows", pa.binary())])
    decoder = PackedChanges(columns, "debezium", ChangeOptions(packed=True, **{"source": ["table"], **options}))
    shipped: PackedChanges = pickle.loads(pickle.dumps(decoder))
    return shipped.sort(values)


def unpacked(rows: Sorted) -> list[tuple[str, tuple[str, ...], list[dict[str, Any]]]]:
    """The rows of each table, without what is added but for the operation, and its keys."""
    found = []
    for row in rows.batch.to_pylist():
        (batch,) = unpack_rows(row["rows"])
        of_table = [
            {name: value for name, value in values.items() if name not in ("_seq", "_unchanged")}
            for values in batch.to_pylist()
        ]
        found.append((row["source_table"], tuple(ChangeColumns.of(batch.schema).keys), of_table))
    return found


def change(table: str, number: int, fields: list[dict[str, Any]], op: str, row: dict[str, Any], *keys: str) -> Keyed:
    value = message(number, fields, op, row, table).encode()
    return Keyed.of(value, json.dumps({name: row[name] for name in keys}).encode() if keys else None)


def test_each_table_has_columns_and_keys_of_its_own() -> None:
    heartbeat = {"type": "struct", "fields": [], "name": "io.debezium.connector.common.Heartbeat"}
    rows = read(
        [
            change("users", 1, [ID, NOTE], "c", {"id": 1, "note": "a"}, "id"),
            change("lines", 2, [ID, LINE, PAID], "c", {"id": 1, "line": 2, "paid": "AeI6"}, "id", "line"),
            Keyed.of(json.dumps({"schema": heartbeat, "payload": {"ts_ms": 1}}).encode(), b'{"serverName": "t"}'),
            None,
            change("users", 3, [ID, NOTE], "d", {"id": 1, "note": "made up"}, "id"),
            change("users", 4, [ID, NOTE, PAID], "c", {"id": 2, "note": None, "paid": "AA=="}, "id"),
        ]
    )
    assert unpacked(rows) == [
        ("users", ("id",), [{"id": 1, "note": "a", "_op": "i"}, {"id": 1, "note": None, "_op": "d"}]),
        ("lines", ("id", "line"), [{"id": 1, "line": 2, "paid": Decimal("1234.50"), "_op": "i"}]),
        ("users", ("id",), [{"id": 2, "note": None, "paid": Decimal("0.00"), "_op": "i"}]),
    ]
    assert (rows.numbers, rows.faults) == ([0, 1, 5], {})


def test_tables_of_one_schema_are_told_apart() -> None:
    values = [change(table, number, [ID], "c", {"id": number}) for number, table in enumerate(["a", "b", "a"])]
    assert unpacked(read(values)) == [
        ("a", (), [{"id": 0, "_op": "i"}, {"id": 2, "_op": "i"}]),
        ("b", (), [{"id": 1, "_op": "i"}]),
    ]


def test_rows_of_several_schemas_stay_in_the_order_of_their_messages() -> None:
    """Between them come those of another table, which divide nothing."""
    numbers = enumerate(["t", "other", "t", "noted", "t", "other", "t"])
    values = [
        change("t", number, [ID, NOTE], "c", {"id": number, "note": "x"})
        if table == "noted"
        else change(table, number, [ID], "c", {"id": number})
        for number, table in numbers
    ]
    rows = read(values)
    ids = [(table, [row["id"] for row in of_table]) for table, _, of_table in unpacked(rows)]
    assert ids == [("t", [0, 2]), ("other", [1, 5]), ("t", [3]), ("t", [4, 6])]
    assert rows.numbers == [0, 1, 3, 4]


def test_keys_that_change_in_flight_are_those_of_their_rows() -> None:
    first = change("t", 1, [ID, NOTE], "c", {"id": 1, "note": "a"}, "id")
    second = change("t", 2, [ID, NOTE], "c", {"id": 2, "note": "b"}, "note")
    assert [keys for _, keys, _ in unpacked(read([first, second]))] == [("id",), ("note",)]


@pytest.mark.parametrize("key", [None, b"null", b'{"schema": null, "payload": null}'])
def test_a_table_without_a_key(key: bytes | None) -> None:
    row = message(1, [ID], "c", {"id": 1}).encode()
    rows = read([Keyed.of(row, key)])
    assert unpacked(rows) == [("t", (), [{"id": 1, "_op": "i"}])]
    assert rows.faults == {}


def test_what_differs_by_row_stays_a_column_of_it() -> None:
    values = [change("t", number, [ID], "c", {"id": number}) for number in range(2)]
    (row,) = read(values, source=[]).batch.to_pylist()
    (batch,) = unpack_rows(row["rows"])
    assert batch.num_rows == 2


def test_bad_messages_are_named_beside_good_ones() -> None:
    good = change("t", 1, [ID], "c", {"id": 1}, "id")
    twice = change("t", 2, [ID, {**NOTE, "field": "_op"}], "c", {"id": 2, "_op": "x"}, "id")
    wrong = change("t", 3, [ID], "c", {"id": "x"}, "id")
    truncation = message(4, [ID], "t", {}, "t").encode()
    renamed = Keyed.of(good, b'{"user_id": 1}')
    struct = Keyed.of(good, b"Struct{id=1}")
    rows = read([b"{", good, b'{"op": "c", "after": {"id": 1}}', twice, wrong, truncation, renamed, struct])
    assert rows.numbers == [1]
    faults = [
        *("carries no schema", "carries no schema", "'_op' is there twice", "id", "the table was truncated"),
        *("'user_id', which is no column of its table", "its key is no JSON object"),
    ]
    assert list(rows.faults) == [0, 2, 3, 4, 5, 6, 7]
    assert all(part in fault for part, fault in zip(faults, rows.faults.values(), strict=True))


def flat(op: str, row: dict[str, Any], *added: tuple[str, str]) -> Keyed:
    """A row that was flattened, with what `add.fields` adds."""
    told = {"__op": op, "__deleted": str(op == "d").lower(), **dict(added)}
    fields = [*[field for field in (ID, NOTE) if field["field"] in row]]
    fields += [{"field": name, "type": "string", "optional": True} for name in told]
    schema = {"type": "struct", "fields": fields, "name": "t.public.x.Value"}
    return Keyed.of(json.dumps({"schema": schema, "payload": {**row, **told}}).encode(), b'{"id": 1}')


@pytest.mark.parametrize("name", ["__table", "__source_table"])
def test_flattened_rows_tell_their_table_by_the_fields_that_are_added(name: str) -> None:
    heartbeat = {"type": "struct", "fields": [], "name": "io.debezium.connector.common.Heartbeat"}
    rows = read(
        [
            flat("r", {"id": 1, "note": "a"}, (name, "users")),
            flat("c", {"id": 1}, (name, "visits")),
            json.dumps({"schema": heartbeat, "payload": {"ts_ms": 1}}).encode(),
            flat("u", {"id": 1, "note": "__debezium_unavailable_value"}, (name, "users")),
            flat("d", {"id": 1, "note": "made up"}, (name, "users")),
        ],
        flattened=True,
    )
    of_users = [{"id": 1, "note": note, "_op": op} for note, op in (("a", "r"), (None, "u"), (None, "d"))]
    assert unpacked(rows) == [("users", ("id",), of_users), ("visits", ("id",), [{"id": 1, "_op": "i"}])]
    (batch,) = unpack_rows(rows.batch.to_pylist()[0]["rows"])
    assert batch.column("_unchanged").to_pylist() == [None, ["note"], None]
    assert rows.faults == {}


def test_flattened_rows_that_do_not_tell_their_table_are_bad_by_name() -> None:
    row = {"id": 1, "note": "a"}
    values = [flat("c", row), flat("c", row, ("__table", "t")), None, flat("c", row, ("__schema", "s"))]
    rows = read(values, flattened=True, source=["schema", "table"])
    faults = ["the schema of its row", "the schema of its row", "it has no value", "the table of its row"]
    assert [*rows.faults] == [0, 1, 2, 3]
    assert all(part in fault for part, fault in zip(faults, rows.faults.values(), strict=True))
    assert read([None], flattened=True, tombstones="skip").faults == {}


@pytest.mark.parametrize(
    ("fault", "settings"),
    [
        ("need one column of bytes", {"schema": "rows string"}),
        ("need one column of bytes", {"schema": "rows binary, id long"}),
        ("not of key_fields", {"options": {"packed": True, "key_fields": ["id"]}}),
        ("not of documents", {"options": {"packed": True, "documents": True}}),
        (
            "does not tell the table that a tombstone deletes from",
            {"options": {"packed": True, "flattened": True, "tombstones": "delete"}},
        ),
        ("not of maxwell", {"format": "maxwell"}),
        ("'ts_ms', which differs by row", {"options": {"packed": True, "source": ["ts_ms"]}}),
        ("columns that messages tell", {"schema": "infer"}),
    ],
)
def test_settings_that_do_not_fit_packed_rows(fault: str, settings: dict[str, Any]) -> None:
    given = {"format": "debezium", "schema": "rows binary", "options": {"packed": True}, **settings}
    with pytest.raises(ConfigError, match=fault):
        FileSource("changes", **given)
