"""Schemas of a schema registry, by Confluent's client: by id, and the latest one of a topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from volley.errors import ConfigError, JobError, SourceError, VolleyError
from volley.secrets import redact, redact_uri, redacted

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

__all__ = ["Registry"]

# In seconds: how long a schema that the registry lacks is not asked for again.
_REMEMBERED = 60
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
        """Return the schema with this id; cached per process, that there is none for a minute.

        Raises:
            SourceError: If the registry has no such schema, or it is not Avro.
            JobError: If the registry does not answer.
        """
        return _schema(self, number)

    def latest(self, subject: str) -> str:
        """Return the latest schema of a subject.

        Raises:
            ConfigError: If the registry has no such subject.
            SourceError: If the schema is not Avro.
            JobError: If the registry does not answer.
        """
        missing = ConfigError(f"{redact_uri(self.url)} has no subject {subject!r}", hint="give the schema: schema=…")
        with self.asked(missing):
            version = _client(self).get_latest_version(subject)
        return _avro(version.schema, subject)

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
def _schema(registry: Registry, number: int) -> str:
    """Return a schema; each message asks for that of its own."""
    answer = _answer(registry, number, int(time.monotonic() // _REMEMBERED))
    if isinstance(answer, SourceError):
        raise SourceError(answer.message, hint=answer.hint)
    return answer


@lru_cache(maxsize=1_000)
def _answer(registry: Registry, number: int, turn: int) -> str | SourceError:
    """Return a schema, or why there is none: that is asked again in the next turn."""
    try:
        with registry.asked(SourceError(f"the schema registry has no schema {number}")):
            schema = _client(registry).get_schema(number)
        return _avro(schema, f"schema {number}")
    except SourceError as error:
        return error


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


def _avro(schema: Schema, name: str) -> str:
    if (schema.schema_type or "AVRO") != "AVRO" or schema.references:
        raise SourceError(f"{name} is not Avro, or refers to others", hint="Volley reads Avro that stands for itself")
    return str(schema.schema_str)
