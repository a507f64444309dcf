"""Timeouts for requests of pyiceberg's that have none: they wait for ever on a server that hangs."""

from __future__ import annotations

import time
from typing import Any

import requests
from pyiceberg.catalog.rest.auth import OAuth2TokenProvider
from pyiceberg.io import S3_CONNECT_TIMEOUT, S3_REQUEST_TIMEOUT
from pyiceberg.io.fsspec import SIGNERS, FsspecFileIO, S3V4RestSigner
from pyiceberg.typedef import Properties
from requests import Session
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.exceptions import RequestException

__all__ = ["FILE_IO", "SIGNER", "SIGNS_BY_REST", "SigningFileIO", "TimeoutAdapter", "TokenProvider", "with_timeouts"]

SIGNS_BY_REST = "S3V4RestSigner"
"""pyiceberg's name for the signer that waits for ever."""
SIGNER = "VolleySigner"
"""The name of `_Signer` for pyiceberg, in processes that have imported this module."""

_CONNECT_SECONDS, _REQUEST_SECONDS = 5.0, 30.0


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
        session: The session.
        timeouts: The timeouts of a connection and of a response, in seconds.
        adapter: Sends what no other adapter does.
    """
    for prefix, own in list(session.adapters.items()):
        if prefix in ("http://", "https://"):
            session.mount(prefix, adapter(timeouts))
        elif not isinstance(own, _Wrapped | TimeoutAdapter):
            session.mount(prefix, _Wrapped(own, timeouts))
    return session


class TokenProvider(OAuth2TokenProvider):
    """Gets tokens like another provider, within timeouts.

    Args:
        provider: The other one.
        timeouts: The timeouts of a connection and of a response, in seconds.
    """

    def __init__(self, provider: OAuth2TokenProvider, timeouts: tuple[float, float]) -> None:
        self.__dict__.update(provider.__dict__)
        self._timeouts = timeouts

    def _refresh_token(self) -> None:
        data = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        headers = {"Authorization": self._client_secret_header}
        response = requests.post(self.token_url, data=data, headers=headers, timeout=self._timeouts)
        response.raise_for_status()
        answer = response.json()
        lives = answer.get("expires_in", self.expires_in)
        if lives is None:
            raise ValueError(f"{self.token_url} does not say when its tokens expire: set expires_in")
        self._token = answer["access_token"]
        self._expires_at = time.monotonic() + lives - self.refresh_margin


class _Signer(S3V4RestSigner):
    """Has requests to the storage signed by the catalog, within timeouts."""

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        connect = float(properties.get(S3_CONNECT_TIMEOUT) or _CONNECT_SECONDS)
        self._seconds = float(properties.get(S3_REQUEST_TIMEOUT) or _REQUEST_SECONDS)
        with_timeouts(self._session, (connect, self._seconds), TimeoutAdapter)

    def __call__(self, request: Any, **more: Any) -> None:
        try:
            super().__call__(request, **more)
        except RequestException as error:
            # No TimeoutError: s3fs would ask five times.
            raise OSError(
                f"the catalog's signing service gave no answer within {self._seconds:g} s: {error}"
            ) from error


SIGNERS[SIGNER] = _Signer
FILE_IO = f"{__name__}.SigningFileIO"
"""The name by which pyiceberg loads `SigningFileIO`."""


class SigningFileIO(FsspecFileIO):
    """Files on a storage whose requests the catalog signs. Who unpickles it has the signer."""
