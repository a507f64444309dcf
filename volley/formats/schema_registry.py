"""Schemas of a schema registry, by Confluent's client: by id, and the latest one of a topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import unquote, urlsplit, urlunsplit
from uuid import UUID

from volley.errors import ConfigError, JobError, SourceError, VolleyError
from volley.formats.avro_references import self_contained
from volley.formats.protobuf_schema import decoded
from volley.formats.registered import Registered
from volley.secrets import redact, redact_uri, redacted

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

__all__ = ["BY_GUID", "BY_ID", "Registry", "name_of"]

T = TypeVar("T")

BY_ID, BY_GUID = b"\0", b"\1"
"""The first byte of a message: its schema's id follows, or its GUID."""

# In seconds: how long a schema that the registry lacks is not asked for again.
_REMEMBERED = 60
# The format to ask for, by the kind of schema: a descriptor needs no compiler.
_FORMATS = {"PROTOBUF": "serialized"}
_NAMES = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}
_DEEPEST, _MOST, _LARGEST = 50, 500, 8 << 20
_RETRIES, _RETRY_MS, _LONGEST_RETRY_MS = 2, 200, 2_000


@dataclass(frozen=True)
class Registry:
    """A schema registry.

    Args:
        url: Its URL, with user and password if it needs them.
        timeout: The timeout of a request, in seconds.
    """

    url: str
    timeout: float

    def schema(self, number: int) -> str:
        """Return the Avro schema with this id as one text; raises like `registered`."""
        return self.avro(b"\0" + number.to_bytes(4, "big"))

    def avro(self, head: bytes) -> str:
        """Return an Avro schema as one text, what it refers to within it; raises like `registered`."""
        return self_contained(self.registered(head, "AVRO"))

    def registered(self, head: bytes, kind: str) -> Registered:
        """Return a schema; cached per process, that there is none for a minute.

        Args:
            head: Which one: 0 and its id, or 1 and its GUID, as in front of messages.
            kind: The kind of schema that is asked for.

        Raises:
            SourceError: If the registry has no such schema, or it is of another kind.
            JobError: If the registry does not answer.
        """
        return _registered(self, head, kind)

    def latest(self, subject: str, kind: str = "AVRO") -> Registered:
        """Return the latest schema of a subject.

        Raises:
            ConfigError: If the registry has no such subject.
            SourceError: If the schema is of another kind.
            JobError: If the registry does not answer.
        """
        missing = ConfigError(
            f"{redact_uri(self.url)} has no subject {subject!r}",
            hint="name it: subject=…; or give the schema: schema=…",
        )
        with self.asked(missing):
            # It may have got another one since it was asked last.
            _client(self).clear_latest_caches()
            version = _in_format(self, kind, partial(_client(self).get_latest_version, subject))
        return _Fetch(self, kind).whole(version.schema, subject)

    @contextmanager
    def asked(self, missing: VolleyError) -> Iterator[None]:
        """Translate the errors of a request.

        Args:
            missing: The error if there is no such schema or subject.
        """
        # Slow to import.
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            yield
        except SchemaRegistryError as error:
            if error.http_status_code == HTTPStatus.NOT_FOUND:
                raise missing from redacted(error)
            raise self._failed(f"{error.http_status_code} {error.error_message}") from redacted(error)
        except Exception as error:
            raise self._failed(str(error) or type(error).__name__) from redacted(error)

    def _failed(self, reason: str) -> JobError:
        return JobError(
            f"the schema registry {redact_uri(self.url)} gave no schema: {redact(reason)}",
            hint="check registry=…, its user and password, and that it runs",
        )

    def __repr__(self) -> str:
        return f"Registry({redact_uri(self.url)!r})"


@lru_cache(maxsize=1_000)
def _registered(registry: Registry, head: bytes, kind: str) -> Registered:
    """Return a schema; each message asks for that of its own."""
    answer = _answer(registry, head, kind, int(time.monotonic() // _REMEMBERED))
    if isinstance(answer, SourceError):
        raise SourceError(answer.message, hint=answer.hint)
    return answer


@lru_cache(maxsize=1_000)
def _answer(registry: Registry, head: bytes, kind: str, turn: int) -> Registered | SourceError:
    """Return a schema, or why there is none: that is asked again in the next turn."""
    name = name_of(head)
    try:
        with registry.asked(SourceError(f"the schema registry has no {name}")):
            if head[:1] == BY_ID:
                get = partial(_client(registry).get_schema, int.from_bytes(head[1:], "big"))
            else:
                get = partial(_client(registry).get_schema_by_guid, str(UUID(bytes=head[1:])))
            schema = _in_format(registry, kind, get)
        return _Fetch(registry, kind).whole(schema, name)
    except SourceError as error:
        return error


class _Fetch:
    """Collects a schema with all that it refers to."""

    def __init__(self, registry: Registry, kind: str) -> None:
        self._registry, self._kind = registry, kind
        self._count = 0

    def whole(self, schema: Schema, name: str, depth: int = 0) -> Registered:
        kind = str(schema.schema_type or "AVRO")
        if kind != self._kind:
            raise SourceError(f"{name} is {_NAMES.get(kind, kind)}, not {_NAMES[self._kind]}", hint="see value_format")
        self._count += 1
        if depth > _DEEPEST or self._count > _MOST:
            raise SourceError(f"{name} refers to more than {_MOST} schemas, or over more than {_DEEPEST} others")
        text = str(schema.schema_str)
        if len(text) > _LARGEST:
            raise SourceError(f"{name} has more than {_LARGEST:,} characters", hint="that is the limit of a schema")
        references = [(str(each.name), self._reference(each, name, depth)) for each in schema.references or ()]
        return Registered(kind, text, tuple(references))

    def _reference(self, reference: SchemaReference, name: str, depth: int) -> Registered:
        place = f"{reference.subject!r} in version {reference.version}, to which {name} refers"
        with self._registry.asked(SourceError(f"the schema registry has no {place}")):
            get = partial(_client(self._registry).get_version, str(reference.subject), int(reference.version or 0))
            version = _in_format(self._registry, self._kind, get)
        return self.whole(version.schema, place, depth + 1)


def _in_format(registry: Registry, kind: str, get: Callable[..., T]) -> T:
    """Return a schema in the format that is best for its kind; as it is if the registry can't give that."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    if kind not in _FORMATS:
        return get()
    try:
        answer: Any = get(fmt=_FORMATS[kind])
    except SchemaRegistryError as error:
        if error.http_status_code == HTTPStatus.NOT_FOUND:
            raise
        # Apicurio fails to convert a schema that refers to others.
        return get()
    if decoded(str(getattr(answer, "schema", answer).schema_str)) is not None:
        return cast("T", answer)
    # Apicurio writes the bytes of a descriptor as if they were text. The client remembers them, whatever the format.
    _client(registry).clear_caches()
    return get()


def name_of(head: bytes) -> str:
    """Return what messages call a schema.

    Example:
        >>> name_of(bytes([0, 0, 0, 0, 7]))
        'schema 7'
    """
    number = int.from_bytes(head[1:], "big") if head[:1] == BY_ID else UUID(bytes=head[1:])
    return f"schema {number}"


@lru_cache(maxsize=16)
def _client(registry: Registry) -> SchemaRegistryClient:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    parts = urlsplit(registry.url)
    settings: dict[str, object] = {
        "url": urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")),
        "timeout": registry.timeout,
        "max.retries": _RETRIES,
        "retries.wait.ms": _RETRY_MS,
        "retries.max.wait.ms": _LONGEST_RETRY_MS,
    }
    if parts.username is not None:
        settings["basic.auth.user.info"] = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return SchemaRegistryClient(settings)
