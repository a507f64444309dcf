"""The settings of a receiver, as its process gets them; checks of a WebhookSource's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley.checks import names, one_of, optional, text
from volley.connectors.webhook.auth import BearerAuth, HmacAuth, ServerTls
from volley.connectors.webhook.keys import json_path
from volley.errors import ConfigError
from volley.types.schemas import check_schema, column_names

if TYPE_CHECKING:
    from volley.formats.messages import Decoder

__all__ = [
    "METADATA",
    "UNKNOWN",
    "ReceiverSettings",
    "check_columns",
    "check_idempotency",
    "check_include",
    "check_path",
    "check_port",
    "value_schema",
]

METADATA = ("key", "received_at")
"""The parts of a request besides its body; their columns are named ``http_…``."""

UNKNOWN = "http_unknown"
"""The column of the fields of a JSON object that the schema lacks."""


@dataclass(frozen=True)
class ReceiverSettings:
    """What the receiver's process gets: the settings of `WebhookSource` of the same names, checked, and these.

    Args:
        remember_keys: Seconds.
        timeout: Seconds.
        decoder: Decodes bodies, to refuse those that it can't; None = all are stored.
    """

    folder: str
    host: str
    port: int
    path: str
    auth: HmacAuth | BearerAuth | None
    tls: ServerTls | None
    idempotency: str | None
    headers: tuple[str, ...]
    remember_keys: float
    max_body: int
    max_waiting: int
    max_staged: int
    max_connections: int
    max_rate: float | None
    timeout: float
    decoder: Decoder | None


def check_port(name: str, value: Any) -> int:
    """Return a TCP port; 0 = a free one."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 16:
        raise ConfigError(f"{name} {value!r} is not valid", hint="0 to 65535; 0 = a free port")
    return value


def check_path(name: str, value: Any) -> str:
    """Return the path of a URL."""
    if not re.fullmatch(r"/[\w./~%-]*", text(name, value)) or value in ("/healthz", "/readyz"):
        raise ConfigError(f"{name} {value!r} is not valid", hint='for example "/events"; not /healthz, /readyz')
    return str(value)


def check_idempotency(name: str, value: Any) -> str | None:
    """Return where a request's idempotency key is."""
    place, colon, rest = (optional(text)(name, value) or "").partition(":")
    if value is None or (place == "header" and re.fullmatch(r"[\w-]+", rest)):
        return None if value is None else str(value)
    if place != "json" or not colon:
        raise ConfigError(f"{name} {value!r} is not valid", hint='"header:Idempotency-Key", or "json:$.id"')
    json_path(rest)
    return str(value)


def value_schema(value_format: str, schema: Any) -> Any:
    """Return the schema of bodies in a hashable form; None if they have one column.

    Raises:
        ConfigError: If the format needs a schema and there is none, or takes none.
    """
    if value_format == "json":
        if schema is None:
            raise ConfigError("JSON bodies need a schema", hint='schema="id long, name string"; or value_format="raw"')
        return check_schema(schema)
    if schema is not None:
        raise ConfigError(f"value_format={value_format!r} has one column, value; no schema", hint="leave schema out")
    return None


def check_include(name: str, value: Any) -> tuple[str, ...]:
    """Return the parts of a request to add as columns."""
    parts = names(name, value)
    for part in parts:
        one_of(METADATA)(name, part)
    if len(set(parts)) < len(parts):
        raise ConfigError(f"{name} names a part twice", hint="once is enough")
    return parts


def check_columns(value_format: str, schema: Any, on_unknown: str, include: Sequence[str], headers: Any) -> None:
    """Check that all columns have names of their own.

    Raises:
        ConfigError: If two columns have one name, or `on_unknown` does not apply to the format.
    """
    if on_unknown != "warn" and value_format != "json":
        raise ConfigError(f"on_unknown={on_unknown!r} is for JSON, not for {value_format}", hint="leave it out")
    columns = column_names(schema) if value_format == "json" else ["value"]
    added = [f"http_{part}" for part in include] + ([UNKNOWN] if on_unknown == "keep" else [])
    if not isinstance(headers, Mapping) or not all(isinstance(header, str) for header in headers.values()):
        raise ConfigError("header_columns is no dict of texts", hint='{"event": "X-GitHub-Event"}')
    if conflicts := sorted((set(added) & set(columns)) | (set(headers) & {*added, *columns})):
        raise ConfigError(
            f"column {conflicts[0]!r} is there twice: in the schema, or in what the settings add",
            hint="leave one out, or name a header's column otherwise",
        )
