"""Requests that AWS' credentials sign: their chain is asked again if a catalog refuses those that it gave before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import rest
from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter

__all__ = ["SigningAdapter", "Signs"]

_REFUSALS = (401, 403)


@dataclass(frozen=True)
class Signs:
    """How requests to a catalog are signed; picklable. Who has no keys among the properties asks its own chain.

    Args:
        uri: The address of the catalog.
        properties: Those of the catalog that say how.
    """

    uri: str
    properties: Mapping[str, Any] = field(repr=False)

    def adapter(self) -> Any:
        """Return pyiceberg's adapter, which keeps what it has asked the chain for."""
        catalog = rest.RestCatalog.__new__(rest.RestCatalog)
        catalog.uri, catalog.properties = self.uri, dict(self.properties)
        with Session() as session:
            rest.RestCatalog._init_sigv4(catalog, session)
            return session.adapters[self.uri]

    def for_tasks(self) -> Signs:
        """Return the same, without what can't be sent."""
        named = {name: value for name, value in self.properties.items() if name.startswith(("rest.sig", "client."))}
        return Signs(self.uri, named)


class SigningAdapter(BaseAdapter):
    """Signs requests. One that is refused is signed anew if the chain has other credentials by now.

    AWS' client renews those of roles itself; what stands in files and variables it reads once.
    """

    def __init__(self, signs: Signs) -> None:
        super().__init__()
        self._signs = signs
        self._adapter = signs.adapter()

    @property
    def has_keys(self) -> bool:
        """True if there are credentials to sign with."""
        return _keys(self._adapter) is not None

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        unsigned = request.copy()
        response: Response = self._adapter.send(request, *args, **kwargs)
        if response.status_code not in _REFUSALS:
            return response
        fresh = self._signs.adapter()
        if _keys(fresh) in (None, _keys(self._adapter)):
            return response
        self._adapter = fresh
        # The connection is free once the answer is read.
        _ = response.content
        response.close()
        again: Response = fresh.send(unsigned, *args, **kwargs)
        return again

    def close(self) -> None:
        self._adapter.close()


def _keys(adapter: Any) -> Any:
    """Return the keys that an adapter signs with; None if it has none."""
    credentials = adapter._boto_session.get_credentials()
    return None if credentials is None else credentials.get_frozen_credentials()
