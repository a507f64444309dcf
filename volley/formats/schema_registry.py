"""Client of a schema registry (Confluent's protocol): schemas by id, and the latest schema of a topic."""

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
    """A schema registry.

    Args:
        url: Its URL, with user and password if it needs them.
        timeout: The timeout of a request, in seconds.
    """

    url: str
    timeout: float

    def schema(self, number: int) -> str:
        """Return the schema with this id; cached per process.

        Raises:
            SourceError: If the registry has no such schema.
            JobError: If the registry does not answer.
        """
        return _schema(self, number)

    def latest(self, subject: str) -> str:
        """Return the latest schema of a subject.

        Raises:
            ConfigError: If the registry has no such subject.
            JobError: If the registry does not answer.
        """
        response = self.get(f"subjects/{quote(subject, safe='')}/versions/latest")
        if response is None:
            raise ConfigError(f"{redact_uri(self.url)} has no subject {subject!r}", hint="give the schema: schema=…")
        return _avro(response, subject)

    def get(self, path: str) -> dict[str, Any] | None:
        """Return the JSON response for a path; None if the registry has no such resource."""
        # Slow to import.
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
    response = registry.get(f"schemas/ids/{number}")
    if response is None:
        raise SourceError(f"the schema registry has no schema {number}")
    return _avro(response, f"schema {number}")


def _avro(response: dict[str, Any], name: str) -> str:
    if response.get("schemaType", "AVRO") != "AVRO" or response.get("references"):
        raise SourceError(f"{name} is not Avro, or refers to others", hint="Volley reads Avro that stands for itself")
    return str(response["schema"])
