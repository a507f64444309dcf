"""A schema registry (Confluent's protocol): the schemas of messages by id, and a topic's latest one."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from volley.errors import ConfigError, JobError, SourceError
from volley.secrets import redact_uri

if TYPE_CHECKING:
    from urllib.request import Request

__all__ = ["Registry"]

_NOT_FOUND = 404


@dataclass(frozen=True)
class Registry:
    """Where schemas are.

    Args:
        url: Its address, with user and password if it asks for them.
        timeout: The longest to wait for an answer, in seconds.
    """

    url: str
    timeout: float

    def schema(self, number: int) -> str:
        """The schema with an id; asked for once in a process.

        Raises:
            SourceError: If there is none.
            JobError: If the registry does not answer.
        """
        return _schema(self, number)

    def latest(self, subject: str) -> str:
        """The latest schema of a subject.

        Raises:
            ConfigError: If there is none.
            JobError: If the registry does not answer.
        """
        found = self.asked(f"subjects/{quote(subject, safe='')}/versions/latest")
        if found is None:
            raise ConfigError(f"{redact_uri(self.url)} has no subject {subject!r}", hint="give the schema: schema=…")
        return _avro(found, subject)

    def asked(self, path: str) -> dict[str, Any] | None:
        """The answer to a question; None if there is no such thing."""
        # Imported when it is needed: it is slow to import.
        from urllib.error import HTTPError
        from urllib.request import urlopen

        try:
            with urlopen(self._request(path), timeout=self.timeout) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except HTTPError as error:
            if error.code == _NOT_FOUND:
                return None
            raise self._failed(f"{error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            raise self._failed(str(error)) from None

    def _request(self, path: str) -> Request:
        from urllib.request import Request

        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        return Request(f"{urlunsplit((parts.scheme, host, parts.path, '', '')).rstrip('/')}/{path}", headers=headers)

    def _failed(self, reason: str) -> JobError:
        return JobError(
            f"the schema registry {redact_uri(self.url)} gave no schema: {redact_uri(reason)}",
            hint="check registry=…, its user and password, and that it runs",
        )

    def __repr__(self) -> str:
        return f"Registry({redact_uri(self.url)!r})"


@lru_cache(maxsize=1_000)
def _schema(registry: Registry, number: int) -> str:
    found = registry.asked(f"schemas/ids/{number}")
    if found is None:
        raise SourceError(f"the schema registry has no schema {number}")
    return _avro(found, f"schema {number}")


def _avro(found: dict[str, Any], what: str) -> str:
    if found.get("schemaType", "AVRO") != "AVRO" or found.get("references"):
        raise SourceError(f"{what} is not Avro, or refers to others", hint="Volley reads Avro that stands for itself")
    return str(found["schema"])
