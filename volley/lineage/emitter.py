"""Sends events by the client of OpenLineage, in a thread: whatever becomes of them, the work itself goes on."""

from __future__ import annotations

import importlib.util
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

from volley.metrics.sender import Sender
from volley.secrets import redact_uri

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

__all__ = ["Emitter", "Events", "configured_emitter"]

_log = logging.getLogger(__name__)

Events = Callable[[], Iterable[Any]]
"""Makes events, as of ``openlineage.client.event_v2``; called in the thread that sends them."""

_MOST_WAITING = 1_000
_SECONDS_AT_EXIT = 5.0
# The client itself writes variables of this name into the environment.
_OWN = "OPENLINEAGE__TRANSPORT__TRANSPORTS__DEFAULT_HTTP__"


class Emitter(Sender):
    """Makes and sends events one after the other; those for which there is no room are dropped, with a warning.

    Args:
        most: How many may wait.
    """

    def __init__(self, most: int = _MOST_WAITING) -> None:
        super().__init__("lineage", "event", most)

    def emit(self, events: Events) -> None:
        """Let the thread make events and send them; return at once."""
        self.send(partial(self._emit, events))

    @cached_property
    def _client(self) -> OpenLineageClient | None:
        return _client()

    def _emit(self, events: Events) -> None:
        if self._client is not None:
            for event in events():
                self._client.emit(_masked(self._client.add_source_code_location_facet(event)))

    def _close(self) -> None:
        until = time.monotonic() + _SECONDS_AT_EXIT
        if self.flush(_SECONDS_AT_EXIT) and self._client is not None:
            # Transports of Kafka and of asynchronous HTTP have queues of their own; -1 would be no limit.
            self._client.close(max(until - time.monotonic(), 0.1))


def _masked(event: Any) -> Any:
    """Return an event without the password that the address of the repository may have, which the client adds."""
    facet = (event.job.facets or {}).get("sourceCodeLocation")
    if facet is not None:
        facet.url, facet.repoUrl = redact_uri(facet.url), facet.repoUrl and redact_uri(facet.repoUrl)
    return event


def configured_emitter() -> Emitter | None:
    """Return the emitter of this process; None unless the client of OpenLineage is configured.

    It is by its environment variables or a file ``openlineage.yml``, as its documentation says.
    """
    variables = tuple(sorted((name, value) for name, value in os.environ.items() if _is_setting(name)))
    files = tuple(_files())
    if not variables and not files:
        return None
    return _emitter(variables, files)


@lru_cache(maxsize=8)
def _emitter(variables: tuple[tuple[str, str], ...], files: tuple[str, ...]) -> Emitter | None:
    """Return the emitter for a configuration; None if it can't name a transport."""
    given = dict(variables)
    names_transport = "OPENLINEAGE_URL" in given or any(name.startswith("OPENLINEAGE__TRANSPORT") for name in given)
    if given.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true" or not (files or names_transport):
        return None
    if importlib.util.find_spec("openlineage") is None:
        text = (
            'lineage: OpenLineage is configured, but its client is not installed: pip install "volley-stream[lineage]"'
        )
        _log.warning(text)
        return None
    return Emitter()


def _is_setting(name: str) -> bool:
    return name.startswith("OPENLINEAGE_") and not name.startswith(_OWN)


def _files() -> Iterator[str]:
    """Yield the files that the client may read, of those where it looks; a folder that can't be read has none."""
    given, own = os.environ.get("OPENLINEAGE_CONFIG"), os.path.join("~", ".openlineage", "openlineage.yml")
    for path in (given, "openlineage.yml", os.path.expanduser(own)):
        if path and os.path.isfile(path):
            yield os.path.abspath(path)


def _client() -> OpenLineageClient | None:
    """Return the client as it is configured; None if it names no transport, where the client would print events."""
    try:
        from openlineage.client import OpenLineageClient
        from openlineage.client.transport.noop import NoopConfig, NoopTransport

        config = OpenLineageClient(transport=NoopTransport(NoopConfig())).config
        if not (config.transport or {}).get("type") and not os.environ.get("OPENLINEAGE_URL"):
            return None
        return OpenLineageClient()
    except Exception as error:
        text = "lineage: the client of OpenLineage can't start, so nothing is sent: %s"
        _log.warning(text, redact_uri(f"{type(error).__name__}: {error}"))
        return None
