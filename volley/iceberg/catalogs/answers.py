"""Reads the answers of catalogs that have caused an error: what was asked and said, when to retry."""

from __future__ import annotations

import re
import sqlite3
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from volley.errors import CatalogAuthError, CatalogUnreachableError, StorageError, TableNotFoundError, VolleyError

__all__ = [
    "ATTEMPTS",
    "Answer",
    "answers",
    "commit_retry",
    "is_own_check",
    "never_sent",
    "refuses",
    "retry_reads",
    "status_of",
]

# The class of Java's exception, for which Nessie 0.99 answers 500.
_UNSUPPORTED = "UnsupportedOperationException"
_SUBJECT = re.compile(r"/(namespaces)(?:/[^/]+(?:/(tables)(?:/[^/]+)?)?)?/?$")

_T = TypeVar("_T")
ATTEMPTS = 4
# An epoch waits at most a minute and a half for a catalog that says when it can be asked again.
_LONGEST_WAIT = 30.0
_backoff = wait_exponential(multiplier=0.1, max=0.4)


@dataclass(frozen=True)
class Answer:
    """A catalog's answer to one request.

    Args:
        method: The method of the request; empty for AWS.
        path: The path of the request, before any redirect.
        is_of_catalog: True if the body is an error of Iceberg's REST protocol, and not a gateway's.
        is_offered: False if the catalog says that it has no such operation; some do so with status 500.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = ""
    path: str = ""
    is_of_catalog: bool = True
    is_offered: bool = True

    @property
    def subject(self) -> str:
        """What the request is about: "namespaces", "namespace", "tables", "table", or "" for token and settings.

        A commit of several tables is about a table.
        """
        if self.path.endswith("/transactions/commit"):
            return "table"
        match = _SUBJECT.search(self.path)
        if match is None:
            return ""
        collection = match[2] or match[1]
        return collection if match[0].rstrip("/").endswith("/" + collection) else collection[:-1]

    @property
    def is_busy(self) -> bool:
        """True if the same request may have success later."""
        return self.status in (408, 425, 429) or (self.status >= 500 and self.status != 501)


def answers(error: BaseException) -> Iterator[Answer]:
    """Yield the catalogs' HTTP answers that have caused an error; those of storages have no history."""
    for cause in _causes(error):
        response: Any = getattr(cause, "response", None)
        if isinstance(response, dict):
            said = response.get("ResponseMetadata", {})
            if "HTTPStatusCode" in said:
                yield Answer(said["HTTPStatusCode"], said.get("HTTPHeaders", {}))
        elif hasattr(response, "history"):
            yield _answer(response)


def _answer(response: Any) -> Answer:
    first = [*response.history, response][0]
    path = urlsplit(first.url).path
    error = _error_in(response)
    is_offered = response.status_code != 501 and not (isinstance(error, dict) and error.get("type") == _UNSUPPORTED)
    return Answer(response.status_code, response.headers, first.request.method, path, error is not None, is_offered)


def _error_in(response: Any) -> Any:
    """Return the error of Iceberg's REST protocol that a body has; None if it has none."""
    try:
        return response.json()["error"]
    except (ValueError, TypeError, KeyError):
        return None


def status_of(error: BaseException) -> int | None:
    """Return the status of the HTTP answer that has caused an error; None without one."""
    return next((answer.status for answer in answers(error)), None)


def retry_after(error: BaseException) -> float | None:
    """Return the seconds after which the catalog is to be asked again, as its answer says; None if it does not."""
    for answer in answers(error):
        text = answer.headers.get("Retry-After", "").strip()
        if text.isdecimal():
            return float(text[:9])
        with suppress(ValueError):
            return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return None


def refuses(error: BaseException) -> bool:
    """Return True if the error of a commit shows that it can't land once the table lacks it.

    It was not sent, or it was refused. A gateway that repeats a request may pass on the refusal of one that has landed,
    so the table has to tell.
    """
    # The catalog is asked after the metadata file is written.
    if isinstance(error, TableNotFoundError | CatalogAuthError | StorageError):
        return True
    # A proxy answers 408 when it has waited long enough: the request may still be on its way.
    if any((400 <= answer.status < 500 and answer.status != 408) or not answer.is_offered for answer in answers(error)):
        return True
    # NotImplementedError is raised for a request that the catalog does not offer, before it is sent, and for 501.
    return any(
        isinstance(cause, NotImplementedError) or is_own_check(cause) or _is_of_database(cause)
        for cause in _causes(error)
    )


def never_sent(error: BaseException) -> bool:
    """Return True if a REST catalog was not reached at all: no connection was made, or its certificate not trusted."""
    return any(_is_unconnected(cause) for cause in _causes(error))


def _is_unconnected(error: BaseException) -> bool:
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError, SSLError

    reason = getattr(error.args[0], "reason", None) if error.args else None
    is_untrusted = isinstance(reason, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(reason)
    return is_untrusted or isinstance(reason, NewConnectionError | ConnectTimeoutError)


def is_own_check(error: BaseException) -> bool:
    """Return True if pyiceberg itself raised the error, and not for an answer or for a file."""
    from pyiceberg.exceptions import RESTError

    frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    raised_there = bool(frames) and frames[-1].startswith("pyiceberg.")
    return raised_there and not isinstance(error, RESTError | OSError)


def _is_of_database(error: BaseException) -> bool:
    """Return True if a database has ended a statement with an error, and the connection to it stands."""
    origin = getattr(error, "orig", None)
    code = str(getattr(origin, "pgcode", None) or getattr(origin, "sqlstate", None) or "")
    # PostgreSQL's classes of lost connections and of shutdowns.
    return isinstance(origin, sqlite3.Error) or (bool(code) and not code.startswith(("08", "57")))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.cause if isinstance(cause, VolleyError) else cause.__cause__


def _wait(state: RetryCallState) -> float:
    """Return the seconds to wait: those that the catalog's ``Retry-After`` names, up to a limit, or the backoff."""
    error = state.outcome.exception() if state.outcome else None
    asked = retry_after(error) if error else None
    return _backoff(state) if asked is None else max(_backoff(state), min(asked, _LONGEST_WAIT))


commit_retry = partial(Retrying, wait=_wait, stop=stop_after_attempt(ATTEMPTS))


def retry_reads(read: Callable[[], _T]) -> _T:
    """Return the result of a call that is safe to repeat; retry while the catalog can't be reached."""
    return commit_retry(retry=retry_if_exception_type(CatalogUnreachableError), reraise=True)(read)
