"""Tokens of REST catalogs: asked for as servers really answer, renewed before they end and after a refusal."""

from __future__ import annotations

import base64
import json
import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import requests
from pyiceberg.catalog.rest import auth
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.exceptions import OAuthError
from requests import PreparedRequest, Response
from requests.exceptions import HTTPError

__all__ = [
    "BearerManager",
    "EntraManager",
    "GoogleManager",
    "HandedManager",
    "SignIn",
    "TokenProvider",
    "TokenServer",
    "token_end",
]

_REFUSALS = (401, 403, 419)
_MARGIN_SECONDS = 60.0
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
_CLOUD_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


def ends_at(lives: Any) -> float:
    """Return when to renew a token that lives for this long: a part of that time, a minute at most, before its end.

    Args:
        lives: The seconds as a server has answered them: a number or its text. What is none says nothing.

    Returns:
        The time by `time.monotonic`; infinity if it is not known.
    """
    try:
        seconds = float(lives)
    except (TypeError, ValueError):
        return math.inf
    if not 0 < seconds < math.inf:
        return math.inf
    return time.monotonic() + seconds - min(_MARGIN_SECONDS, seconds / 4)


@dataclass(frozen=True)
class TokenServer:
    """What gives tokens: a catalog, or an authorization server.

    Args:
        url: Its address.
        headers: Those of each request to the catalog.
        verify: The file of authorities that its certificate is checked by; True = those of the system.
        cert: The client's certificate, if it asks for one.
        timeouts: The timeouts of a connection and of a response, in seconds.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False)
    verify: Any
    cert: Any
    timeouts: tuple[float, float]

    def ask(self, form: Mapping[str, str], **headers: str) -> dict[str, Any]:
        """Return the answer to a request for a token, which has an ``access_token``.

        Raises:
            OAuthError: If the server refuses it, or answers without a token.
        """
        given = {**self.headers, **headers, "Content-type": "application/x-www-form-urlencoded"}
        with requests.Session() as session:
            session.verify, session.cert = self.verify, self.cert
            # What signs in is in the form: a .netrc of the user has no part in it.
            response = session.post(self.url, form, headers=given, timeout=self.timeouts, auth=lambda request: request)
        try:
            response.raise_for_status()
        except HTTPError as error:
            _handle_non_200_response(error, {400: OAuthError, 401: OAuthError})
        answer = response.json()
        if not isinstance(answer, dict) or not isinstance(answer.get("access_token"), str):
            raise OAuthError(f"the answer of {self.url} has no access_token")
        return answer


class BearerManager(auth.AuthManager):
    """Signs in by a bearer token: a given one, or those that client credentials are exchanged for; or by nothing.

    Args:
        server: What gives tokens.
        credential: The client credentials, ``"id:secret"``, or the secret alone.
        token: The first token.
        parameters: Further parameters for the server: ``scope``, ``audience``, ``resource``.
        exchanges: True: before `token` ends, it is exchanged for another.
    """

    def __init__(
        self,
        server: TokenServer,
        credential: str | None,
        token: str | None,
        parameters: Mapping[str, str],
        exchanges: bool = False,
    ) -> None:
        self.settings = (server, credential, token, dict(parameters), exchanges)
        self._start()

    def _start(self) -> None:
        _, credential, token, _, exchanges = self.settings
        self._lock = threading.RLock()
        self._token = None if credential else token
        self._refresh: str | None = None
        self._ends = _end_of(token) if exchanges and token else math.inf

    def __getstate__(self) -> dict[str, Any]:
        # The token ends by the clock of this process: a copy gets one of its own.
        return {"settings": self.settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def auth_header(self) -> str | None:
        with self._lock:
            if time.monotonic() >= self._ends or (self._token is None and self.settings[1]):
                self._refresh_token()
            return None if self._token is None else f"Bearer {self._token}"

    def _refresh_token(self) -> None:
        server, credential, _, parameters, exchanges = self.settings
        if credential is not None:
            client, colon, secret = credential.partition(":")
            login = {"client_id": client, "client_secret": secret} if colon else {"client_secret": client}
            form = {"grant_type": "client_credentials", **login}
            self._take(server.ask({**form, **parameters}))
        elif self._refresh is not None:
            self._take(server.ask({"grant_type": "refresh_token", "refresh_token": self._refresh, **parameters}))
        elif exchanges and self._token is not None:
            form = {"grant_type": _EXCHANGE, "subject_token": self._token, "subject_token_type": _ACCESS_TOKEN}
            self._take(server.ask({**form, **parameters}, Authorization=f"Bearer {self._token}"))

    def _take(self, answer: Mapping[str, Any]) -> None:
        self._token = answer["access_token"]
        self._refresh = answer.get("refresh_token", self._refresh)
        self._ends = ends_at(answer.get("expires_in"))


def _end_of(token: str) -> float:
    """Return when to renew a JSON web token, by its ``exp``; infinity if it says nothing of its end."""
    end = token_end(token)
    return math.inf if end is None else ends_at(end - time.time())


def token_end(token: str) -> float | None:
    """Return when a JSON web token ends, by its ``exp``, in seconds since the epoch; None if it does not say."""
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return None


class TokenProvider(auth.OAuth2TokenProvider):
    """Gets tokens like another provider, within timeouts.

    Args:
        timeouts: The timeouts of a connection and of a response, in seconds.
    """

    def __init__(self, provider: auth.OAuth2TokenProvider, timeouts: tuple[float, float]) -> None:
        self.__dict__.update(provider.__dict__)
        self._timeouts = timeouts

    def __getstate__(self) -> dict[str, Any]:
        # The token ends by the clock of this process: a copy gets one of its own.
        return {**self.__dict__, "_lock": None, "_token": None, "_expires_at": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

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
        # pyiceberg has a whole number there; servers answer fractions, and texts.
        self._expires_at: Any = time.monotonic() + float(lives) - self.refresh_margin


class GoogleManager(auth.AuthManager):
    """Signs in with Google's credentials; pyiceberg 0.12's own manager asks for a token before each request.

    Args:
        credentials_path: The file of a service account's key; None = Application Default Credentials.

    Raises:
        ImportError: If google-auth is not installed.
        OAuthError: If there are no credentials, or they can't be read.
    """

    def __init__(self, credentials_path: str | None = None) -> None:
        self._path = credentials_path
        self._start()
        # Without credentials it is said at once, but not where a copy may never need them.
        _ = self._credentials

    def _start(self) -> None:
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    @cached_property
    def _credentials(self) -> Any:
        from google.auth import default
        from google.auth.exceptions import GoogleAuthError
        from google.oauth2.service_account import Credentials

        by_file: Any = Credentials.from_service_account_file
        scopes = [_CLOUD_SCOPE]
        try:
            return default(scopes=scopes)[0] if self._path is None else by_file(self._path, scopes=scopes)
        except (GoogleAuthError, OSError, ValueError) as error:
            raise OAuthError(f"Google's credentials: {error}") from error

    @property
    def _token(self) -> str | None:
        token: str | None = self._credentials.token
        return token

    def auth_header(self) -> str:
        with self._lock:
            if not self._credentials.valid:
                self._refresh_token()
            return f"Bearer {self._token}"

    def _refresh_token(self) -> None:
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.requests import Request

        try:
            self._credentials.refresh(Request())
        except TransportError as error:
            raise ConnectionError(f"Google's token service: {error}") from error
        except GoogleAuthError as error:
            raise OAuthError(f"Google's credentials: {error}") from error


class EntraManager(auth.EntraAuthManager):
    """Signs in with Microsoft Entra's default chain, whose errors say that it was the chain."""

    def __reduce__(self) -> Any:
        return type(self), (self._scopes,)

    def _refresh_token(self) -> None:
        from azure.core.exceptions import AzureError, ClientAuthenticationError

        try:
            super()._refresh_token()
        except ClientAuthenticationError as error:
            raise OAuthError(f"Entra's credentials: {error}") from error
        except AzureError as error:
            raise ConnectionError(f"Entra's token service: {error}") from error


class HandedManager(auth.AuthManager):
    """Signs in like another manager that can't be sent to tasks; they get what that one signs in by at that time.

    Args:
        manager: The other one.
    """

    def __init__(self, manager: auth.AuthManager) -> None:
        self._manager = manager

    def __reduce__(self) -> Any:
        return _Handed, (self.auth_header(),)

    def auth_header(self) -> str | None:
        return self._manager.auth_header()


class _Handed(auth.AuthManager):
    """Signs in by one header, as long as that is good."""

    def __init__(self, header: str | None) -> None:
        self._header = header

    def auth_header(self) -> str | None:
        return self._header


class SignIn(auth.AuthManagerAdapter):
    """Signs requests in by a manager; sends one again with a new token that is refused with one taken before.

    A token that was never taken is not renewed: the client lacks a privilege.
    """

    def __init__(self, manager: auth.AuthManager) -> None:
        super().__init__(manager)
        self._accepted: str | None = None
        self._own = threading.local()

    @contextmanager
    def by(self, token: str | None) -> Iterator[None]:
        """Sign the requests of this thread in by a table's own token; None = by the manager, as ever."""
        self._own.token = token
        try:
            yield
        finally:
            self._own.token = None

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        own = getattr(self._own, "token", None)
        if own is not None:
            request.headers["Authorization"] = f"Bearer {own}"
            return request
        if (header := self.auth_manager.auth_header()) is not None:
            request.headers["Authorization"] = header
            request.register_hook("response", self._again)
        return request

    def _again(self, response: Response, **sent: Any) -> Response:
        """Return the answer to a refused request that is sent once more, with a new token; or this answer."""
        header = str(response.request.headers.get("Authorization"))
        if response.status_code < 400:
            self._accepted = header
        if response.status_code not in _REFUSALS or header != self._accepted:
            return response
        self._renew(header)
        if (renewed := self.auth_manager.auth_header()) in (None, header):
            return response
        # The connection is free once the answer is read.
        _ = response.content
        response.close()
        request = response.request.copy()
        request.headers["Authorization"] = str(renewed)
        connection: Any = response.connection
        again: Response = connection.send(request, **sent)
        again.history.append(response)
        again.request = request
        return again

    def _renew(self, refused: str) -> None:
        """Get another token than the refused one, unless another thread has one already."""
        manager: Any = self.auth_manager
        holder = manager.token_provider if isinstance(manager, auth.OAuth2AuthManager) else manager
        if hasattr(holder, "_refresh_token"):
            with holder._lock:
                if f"Bearer {holder._token}" == refused:
                    holder._refresh_token()
