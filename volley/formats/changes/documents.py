"""MongoDB's envelopes, whose rows are texts of extended JSON: written as envelopes of rows, in ordinary JSON."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa

from volley.errors import SourceError
from volley.formats.change_options import ChangeOptions
from volley.formats.changes.wire import Wire, declared_wires

__all__ = ["Documents", "wires_of_documents"]

_ID = "_id"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_ID = (
    "{0} without a document, which only the record's key tells, in Kafka: without it, have Debezium write documents, "
    "by capture.mode=change_streams_update_full_with_pre_image"
)


class _Envelope(msgspec.Struct):
    op: str | None = None
    before: str | None = None
    after: str | None = None
    source: msgspec.Raw = msgspec.Raw(b"null")
    update: Mapping[str, Any] | None = msgspec.field(default=None, name="updateDescription")


_ENVELOPE = msgspec.json.Decoder(_Envelope)


@dataclass(frozen=True)
class Documents:
    """Rewrites envelopes.

    Args:
        columns: The columns of rows.
    """

    columns: pa.Schema

    def envelope(self, payload: bytes, key: bytes | None) -> bytes:
        """Return an envelope whose rows are objects; one that is no change of a document as it is.

        Args:
            payload: The envelope.
            key: The key of its record; None = it is not known.

        Raises:
            SourceError: If it tells no row.
        """
        try:
            message = _ENVELOPE.decode(payload)
        except msgspec.DecodeError as error:
            raise SourceError(f"no envelope of MongoDB's: {error}") from error
        if message.op not in ("c", "u", "r", "d"):
            return payload
        row = self._row(message, key)
        place = {"before": row} if message.op == "d" else {"after": row}
        return msgspec.json.encode({"op": message.op, **place, "source": message.source})

    def _row(self, message: _Envelope, key: bytes | None) -> dict[str, Any]:
        """Return the fields of a document; of an update without one, those that it has changed."""
        text = message.before if message.op == "d" else message.after
        if text is not None:
            # A field that the document lacks is null.
            return {**dict.fromkeys(self._targets), **self._values(_document(text))}
        if message.op in ("c", "r"):
            raise SourceError(f"op {message.op!r} without after")
        changed = {} if message.op == "d" else self._changed(message.update)
        if key is not None:
            changed[_ID] = _id_of(key)
        elif message.before is not None:
            changed[_ID] = _document(message.before).get(_ID)
        else:
            raise SourceError(_NO_ID.format("a deletion" if message.op == "d" else "an update"))
        return self._values(changed)

    def _changed(self, update: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the fields that an update has changed, as far as they have a column."""
        if update is None:
            raise SourceError("an update with neither after nor updateDescription")
        fields = _document(update.get("updatedFields") or "{}")
        removed = dict.fromkeys(update.get("removedFields") or ())
        cut = [str(array.get("field")) for array in update.get("truncatedArrays") or ()]
        for path in (*fields, *removed, *cut):
            column, dot, _ = path.partition(".")
            if column in self._targets and (dot or path in cut):
                raise SourceError(
                    f"an update of {path[:100]!r} without after tells a part of column {column!r} alone: "
                    "capture.mode=change_streams_update_full has Debezium look the document up"
                )
        return {**fields, **removed}

    def _values(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a document's fields; those in no column as texts, of which the names are looked at alone."""
        try:
            return {name: _value(value, self._targets.get(name, pa.string())) for name, value in document.items()}
        except (ValueError, TypeError, KeyError, OverflowError, ArithmeticError) as error:
            raise SourceError(f"the document has a value that is no extended JSON, or out of range: {error}") from error

    @cached_property
    def _targets(self) -> dict[str, pa.DataType]:
        return {column.name: column.type for column in self.columns}


def wires_of_documents(columns: pa.Schema) -> Mapping[str, Wire]:
    """Return how columns are written in the envelopes that `Documents` returns."""
    texts = [column.name for column in columns if pa.types.is_decimal(column.type)]
    return {
        **declared_wires(columns, ChangeOptions(), is_debezium=False, texts=False),
        **dict.fromkeys(texts, Wire(logical="text")),
    }


def _document(text: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise SourceError(f"{text[:40]!r} is no document in extended JSON: {error}") from error
    return value


def _id_of(key: bytes) -> Any:
    """Return the ``_id`` of a record's key, which is a text of extended JSON in the field ``id``."""
    try:
        fields = msgspec.json.decode(key, type=dict[str, Any])
        return msgspec.json.decode(fields.get("payload", fields)["id"])
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"the record's key {key[:40]!r} has no id of a document") from error


def _value(value: Any, target: pa.DataType) -> Any:
    """Return a value of extended JSON, relaxed or canonical, as JSON's parser reads it into a type."""
    if isinstance(value, dict):
        read = _SPECIAL.get(next(iter(value), ""))
        return _object(value, target) if read is None else _plain(read(value, target), target)
    if isinstance(value, list) and pa.types.is_list(target):
        return [_value(item, target.value_type) for item in value]
    return _plain(value, target)


def _object(value: dict[str, Any], target: pa.DataType) -> Any:
    if pa.types.is_struct(target):
        types = {part.name: part.type for part in target}
        return {name: _value(inner, types.get(name, pa.string())) for name, inner in value.items()}
    if pa.types.is_map(target):
        return {name: _value(inner, target.item_type) for name, inner in value.items()}
    return _plain(value, target)


def _plain(value: Any, target: pa.DataType) -> Any:
    """Return a value in the form of its column; of an object or list in a column of texts, its JSON."""
    if isinstance(value, datetime):
        return _moment(value, target)
    if pa.types.is_string(target):
        return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
    if pa.types.is_decimal(target) and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{Decimal(repr(value)):f}"
    return value


def _moment(value: datetime, target: pa.DataType) -> Any:
    if pa.types.is_integer(target):
        return (value - _EPOCH) // timedelta(milliseconds=1)
    if pa.types.is_date(target) and value.time() == time():
        return value.date().isoformat()
    text = value.isoformat(timespec="milliseconds").removesuffix("+00:00")
    return text if pa.types.is_timestamp(target) and target.tz is None else f"{text}Z"


def _date(value: Mapping[str, Any], target: pa.DataType) -> datetime:
    moment = value["$date"]
    if isinstance(moment, str):
        return datetime.fromisoformat(moment).astimezone(UTC)
    return _EPOCH + timedelta(milliseconds=int(moment["$numberLong"] if isinstance(moment, dict) else moment))


def _timestamp(value: Mapping[str, Any], target: pa.DataType) -> Any:
    """Return a timestamp of the oplog: its second, or in a column of texts all of it."""
    seconds = int(value["$timestamp"]["t"])
    return _EPOCH + timedelta(seconds=seconds) if pa.types.is_timestamp(target) else dict(value)


def _double(value: Mapping[str, Any], target: pa.DataType) -> Any:
    number = float(value["$numberDouble"])
    return number if isfinite(number) else value["$numberDouble"]


def _decimal(value: Mapping[str, Any], target: pa.DataType) -> Any:
    """Return a decimal as text, which has all of its digits; a column of doubles takes the nearest one."""
    number = Decimal(value["$numberDecimal"])
    if pa.types.is_floating(target) and number.is_finite():
        return float(number)
    return f"{number:f}" if pa.types.is_decimal(target) and number.is_finite() else value["$numberDecimal"]


def _binary(value: Mapping[str, Any], target: pa.DataType) -> str:
    """Return base64; of a UUID its text, unless the column has bytes."""
    binary = value["$binary"]
    data, kind = (binary["base64"], binary["subType"]) if isinstance(binary, dict) else (binary, value["$type"])
    is_uuid = int(str(kind), 16) == _UUID and not pa.types.is_binary(target)
    return str(UUID(bytes=b64decode(data))) if is_uuid else str(data)


def _uuid(value: Mapping[str, Any], target: pa.DataType) -> str:
    uuid = UUID(value["$uuid"])
    return b64encode(uuid.bytes).decode() if pa.types.is_binary(target) else str(uuid)


_UUID = 4
# The first name of an object that is a value of extended JSON, and what reads it; others stay objects.
_SPECIAL: Mapping[str, Callable[[Mapping[str, Any], pa.DataType], Any]] = {
    "$oid": lambda value, target: str(value["$oid"]),
    "$symbol": lambda value, target: str(value["$symbol"]),
    "$undefined": lambda value, target: None,
    "$numberInt": lambda value, target: int(value["$numberInt"]),
    "$numberLong": lambda value, target: int(value["$numberLong"]),
    "$numberDouble": _double,
    "$numberDecimal": _decimal,
    "$date": _date,
    "$timestamp": _timestamp,
    "$binary": _binary,
    "$uuid": _uuid,
}
