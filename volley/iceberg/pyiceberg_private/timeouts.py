"""Sessions of requests that all have timeouts."""

from __future__ import annotations

from typing import Any

from requests import Session
from requests.adapters import BaseAdapter, HTTPAdapter

__all__ = ["TimeoutAdapter", "with_timeouts"]


class TimeoutAdapter(HTTPAdapter):
    """Sends requests with timeouts.

    Args:
        timeouts: The timeouts of a connection and of a response, in seconds.
    """

    def __init__(self, timeouts: tuple[float, float]) -> None:
        super().__init__()
        self._timeouts = timeouts

    def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        return super().send(request, *args, **{**kwargs, "timeout": kwargs.get("timeout") or self._timeouts})


class _Wrapped(BaseAdapter):
    """Sends requests like another adapter, such as one that signs them, with timeouts."""

    def __init__(self, adapter: Any, timeouts: tuple[float, float]) -> None:
        super().__init__()
        self._adapter = adapter
        self._timeouts = timeouts

    def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        return self._adapter.send(request, *args, **{**kwargs, "timeout": kwargs.get("timeout") or self._timeouts})

    def close(self) -> None:
        self._adapter.close()


def with_timeouts(session: Session, timeouts: tuple[float, float], adapter: type[TimeoutAdapter]) -> Session:
    """Return a session all of whose requests have timeouts, those too that another adapter signs.

    Args:
        timeouts: The timeouts of a connection and of a response, in seconds.
    """
    for prefix, own in list(session.adapters.items()):
        if prefix in ("http://", "https://"):
            session.mount(prefix, adapter(timeouts))
        elif not isinstance(own, _Wrapped | TimeoutAdapter):
            session.mount(prefix, _Wrapped(own, timeouts))
    return session
