"""Tables partitioned by identity of every type, rows with values at the borders of each, and filters on them."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import UUIDType

from tests.upserts.lake import Lake
from volley.iceberg import Partitioning
from volley.iceberg.layout.partitioning import partitioning
from volley.iceberg.layout.specs import spec_of
from volley.iceberg.schema.types import to_iceberg_schema

Row = dict[str, Any]
_UUIDS = [0, 2**128 - 1, 1, 2**127, 2**127 - 1, 2**64, 77, 78]
_CENTS = [*map(Decimal, ("-1.25", "9999999.99", "-9999999.99", "0.00", "0.01", "-0.01", "1.28", "-1.28"))]
_SHARES = [10**18 - 1, 1 - 10**18, 0, 1, -1, 5, 6, 7]
# Times and dates as Iceberg counts them.
_MICROS = [0, -1, 1, -(10**15), 10**15, -62135596800000000, 253402300799999999, 999999]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "double": (pa.float64(), [0.1, 1e300, math.nan, -0.0, 0.0, math.inf, -math.inf, 5e-324]),
    "real": (pa.float32(), [0.10000000149011612, 1.5, math.nan, -0.0, 0.0, math.inf, -math.inf, -1.5]),
    "digit": (pa.decimal128(1, 0), [*map(Decimal, (9, -9, 0, 1, -1, 2, 3, 4))]),
    "cents": (pa.decimal128(9, 2), _CENTS),
    "more_cents": (pa.decimal128(9, 2), _CENTS[::-1]),
    "share": (
        pa.decimal128(18, 18),
        [Decimal(each).scaleb(-18) for each in _SHARES],
    ),
    "wide": (
        pa.decimal128(38, 9),
        [*map(Decimal, (f"{'9' * 29}.{'9' * 9}", f"-{'9' * 29}.{'9' * 9}", "0E-9", "1E-9", "-1E-9"))]
        + [Decimal(f"{each}.000000000") for each in (1, 2, 3)],
    ),
    "uuid": (pa.binary(16), [UUID(int=each).bytes for each in _UUIDS]),
    "other_uuid": (pa.binary(16), [UUID(int=each).bytes for each in reversed(_UUIDS)]),
    "raw": (pa.binary(), [b"", b"\xff", b"abc", b"\x80\0\0", b"\x7f\xff\xff", b"a/b" * 30, b"\0", b"%%%"]),
    "clock": (pa.time64("us"), [0, 86399999999, 1, 43200000000, 999999, 1000000, 3600000000, 5]),
    "moment": (pa.timestamp("us"), _MICROS),
    "instant": (pa.timestamp("us", "UTC"), _MICROS),
    "day": (pa.date32(), [0, -1, 1, -719162, 2932896, 19000, -19000, 365]),
    "text": (pa.string(), ["", "ä/ b=ü%", "null", "a", "A", "☃𝄞", "a\0b", "\n"]),
    "yes": (pa.bool_(), [True, False] * 4),
    "long": (pa.int64(), [2**63 - 1, -(2**63), 0, -1, 1, 2**31, -(2**31) - 1, 7]),
    "int": (pa.int32(), [2**31 - 1, -(2**31), 0, -1, 1, 5, 6, 7]),
}
SCHEMA = pa.schema({"id": pa.int64()} | {name: kind for name, (kind, _) in VALUES.items()})
ROWS: list[Row] = [
    *({"id": number} | {name: values[number] for name, (_, values) in VALUES.items()} for number in range(8)),
    {"id": 8} | dict.fromkeys(VALUES),
]


def make_table(lake: Lake, *names: str) -> None:
    """The lake's table, partitioned by these columns; columns whose names have ``uuid`` in them are UUIDs."""
    catalog = lake.config.ref.load_catalog()
    catalog.create_namespace("db")
    fields = [
        field.model_copy(update={"field_type": UUIDType()}) if "uuid" in field.name else field
        for field in to_iceberg_schema(lake.schema).fields
    ]
    spec = spec_of(partitioning([Partitioning.identity(name) for name in names]), Schema(*fields))
    catalog.create_table(
        "db.events", Schema(*fields), partition_spec=spec, properties=dict(lake.config.table_properties)
    )
    catalog.close()


def wanted(names: list[str]) -> list[tuple[str, Any]]:
    """Each column with each of its values, and null."""
    return [(name, value) for name in names for value in [*dict.fromkeys(VALUES[name][1]), None]]


def ids_of(name: str, value: Any) -> set[int]:
    """The rows that have the value; -0.0 and 0.0 are equal to SQL, but are two partitions."""
    if value != value:
        return {row["id"] for row in ROWS if row[name] is not None and row[name] != row[name]}
    return {row["id"] for row in ROWS if row[name] == value}


def as_sql(name: str, value: Any, spark: bool) -> str:
    """A filter for the value."""
    kind = VALUES[name][0]
    if value is None:
        return f"{name} is null"
    if pa.types.is_floating(kind):
        text = {"inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))
        # DuckDB leaves out what could have NaN if it is asked for as a constant.
        return f"isnan({name})" if value != value else f"{name} = cast('{text}' as {kind})"
    if pa.types.is_decimal(kind):
        return f"{name} = cast('{value:f}' as decimal({kind.precision}, {kind.scale}))"
    if pa.types.is_temporal(kind):
        return f"{name} = {_time(kind, value, spark)}"
    if isinstance(value, str):
        encoded = value.encode().hex()
        return f"{name} = " + (f"cast(X'{encoded}' as string)" if spark else f"decode(from_hex('{encoded}'))")
    if isinstance(value, bytes):
        bytes_ = f"X'{value.hex()}'" if spark else f"from_hex('{value.hex()}')"
        return f"{name} = " + (f"'{UUID(bytes=value)}'" if "uuid" in name else bytes_)
    return f"{name} = {value}" if isinstance(value, bool) else f"{name} = cast('{value}' as {kind_name(kind)})"


def kind_name(kind: pa.DataType) -> str:
    return "bigint" if kind == pa.int64() else "int"


def _time(kind: pa.DataType, value: int, spark: bool) -> str:
    if pa.types.is_date(kind):
        return f"date '{dt.date(1970, 1, 1) + dt.timedelta(days=value)}'"
    at = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)
    if pa.types.is_time(kind):
        return f"time '{at.time().isoformat('microseconds')}'"
    name = {(True, True): "timestamp", (True, False): "timestamptz", (False, True): "timestamp_ntz"}
    zone = "+00" if kind.tz else ""
    return f"{name.get((bool(kind.tz), spark), 'timestamp')} '{at.isoformat(' ')}{zone}'"
