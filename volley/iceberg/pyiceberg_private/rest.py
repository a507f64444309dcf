"""pyiceberg's REST catalog with requests that end in time."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import rest
from requests import Session
from requests.adapters import HTTPAdapter

__all__ = ["Limited", "LimitedRestCatalog"]


class Limited(HTTPAdapter):
    """Requests that end in time: pyiceberg's own wait for ever on a server that hangs."""

    def __init__(self, limits: tuple[float, float]) -> None:
        super().__init__()
        self._limits = limits

    def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        return super().send(request, *args, **{**kwargs, "timeout": kwargs.get("timeout") or self._limits})


class LimitedRestCatalog(rest.RestCatalog):
    """A REST catalog whose requests end in time.

    Args:
        name: The catalog's name.
        limits: The longest to wait for a connection, and for an answer, in seconds.
        properties: pyiceberg's.
    """

    adapter: type[Limited] = Limited

    def __init__(self, name: str, limits: tuple[float, float], **properties: str) -> None:
        self._limits = limits
        super().__init__(name, **properties)

    def _limited(self, session: Session) -> Session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, self.adapter(self._limits))
        return session

    def _create_session(self) -> Session:
        return self._limited(super()._create_session())

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> Any:
        # It asks for a token at once, before the session is returned.
        return super()._create_legacy_oauth2_auth_manager(self._limited(session))
