"""pyiceberg's REST catalog with timeouts."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import rest
from requests import Session
from requests.adapters import HTTPAdapter

__all__ = ["TimeoutAdapter", "TimeoutRestCatalog"]


class TimeoutAdapter(HTTPAdapter):
    """Sends requests with timeouts: pyiceberg's own requests wait for ever on a server that hangs."""

    def __init__(self, timeouts: tuple[float, float]) -> None:
        super().__init__()
        self._timeouts = timeouts

    def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        return super().send(request, *args, **{**kwargs, "timeout": kwargs.get("timeout") or self._timeouts})


class TimeoutRestCatalog(rest.RestCatalog):
    """A REST catalog with timeouts.

    Args:
        name: The catalog's name.
        timeouts: The timeouts of a connection and of a response, in seconds.
        properties: The properties for pyiceberg.
    """

    adapter: type[TimeoutAdapter] = TimeoutAdapter

    def __init__(self, name: str, timeouts: tuple[float, float], **properties: str) -> None:
        self._timeouts = timeouts
        super().__init__(name, **properties)

    def _with_timeouts(self, session: Session) -> Session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, self.adapter(self._timeouts))
        return session

    def _create_session(self) -> Session:
        return self._with_timeouts(super()._create_session())

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> Any:
        # This requests a token before the session is returned.
        return super()._create_legacy_oauth2_auth_manager(self._with_timeouts(session))
