"""The settings of a receiver, as its process gets them; checks of a WebhookSource's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley.checks import names, optional, text
from volley.connectors.webhook.auth import Auth, ServerTls
from volley.connectors.webhook.keys import json_path
from volley.errors import ConfigError
from volley.formats.contract import Contract
from volley.types.schemas import column_names

if TYPE_CHECKING:
    from volley.formats.messages import Decoder

__all__ = [
    "check_contract",
    *("METADATA", "UNKNOWN", "ReceiverSettings"),
    *("check_headers", "check_idempotency", "check_origins", "check_path"),
]

METADATA = ("key", "received_at", "client")
"""The parts of a request besides its body; their columns are named ``http_…``."""

UNKNOWN = "http_unknown"
"""The column of the fields of a JSON object that the schema lacks."""


@dataclass(frozen=True)
class ReceiverSettings:
    """What the receiver's process gets: the settings of `WebhookSource` of the same names, checked, and these."""

    folder: str
    host: str
    port: int
    path: str
    auth: Auth | None
    tls: ServerTls | None
    idempotency: str | None
    headers: tuple[str, ...]
    remember_keys: float  # seconds
    max_body: int
    max_waiting: int
    max_staged: int
    max_connections: int
    max_rate: float | None
    timeout: float  # seconds
    decoder: Decoder | None  # decodes bodies, to refuse those that it can't; None = all are stored
    value_format: str
    keeps_bad: bool  # True: also what is no JSON is stored
    keeps_client: bool  # True: the client's address is kept behind the headers
    trusted_proxies: tuple[str, ...]
    allowed_origins: tuple[str, ...]


def check_path(name: str, value: Any) -> str:
    """Return the path of a URL."""
    if not re.fullmatch(r"/[\w./~%-]*", text(name, value)) or value in ("/healthz", "/readyz"):
        raise ConfigError(f"{name} {value!r} is not valid", hint='for example "/events"; not /healthz, /readyz')
    return str(value)


def check_contract(contract: Contract | None, on_bad: str, schema: Any, are_changes: bool) -> None:
    """Check that the receiver knows the columns by which a contract makes bodies bad, to reject these.

    Args:
        are_changes: True: bodies are changes of rows, of which nothing is rescued.
    """
    if contract is None or on_bad != "reject" or not contract.evolves:
        return
    unknown = [name for name, fate in contract.columns.items() if fate == "fail" and name not in column_names(schema)]
    if unknown or contract.types == "fail" or are_changes:
        what = f"columns={unknown[0]!r}" if unknown else "types"
        raise ConfigError(
            f"{what} fails by a column that may be inferred: a body would be bad when it was answered",
            hint='declare the column in the schema, and name it in columns; or on_bad="dead_letter"',
        )


def check_idempotency(name: str, value: Any) -> str | None:
    """Return where a request's idempotency key is."""
    place, colon, rest = (optional(text)(name, value) or "").partition(":")
    if value is None or value == "cloudevents" or (place == "header" and re.fullmatch(r"[\w-]+", rest)):
        return None if value is None else str(value)
    if place != "json" or not colon:
        raise ConfigError(f"{name} {value!r} is not valid", hint='"header:Idempotency-Key", or "json:$.id"')
    json_path(rest)
    return str(value)


def check_origins(name: str, value: Any) -> tuple[str, ...]:
    """Return names of senders in lower case."""
    return tuple(origin.lower() for origin in names(name, value))


def check_headers(name: str, value: Any) -> Mapping[str, str]:
    """Return the columns of headers, with the headers that they have."""
    if not isinstance(value, Mapping) or not all(isinstance(header, str) for header in value.values()):
        raise ConfigError(f"{name} is no dict of texts", hint='{"event": "X-GitHub-Event"}')
    return value
