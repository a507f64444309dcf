"""Files on a storage whose credentials a REST catalog gives for a time: who holds them asks for others before they end.

Each cloud's own client asks its credentials at every request; here they come from what was asked for last.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from fsspec import AbstractFileSystem
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager
from pyiceberg.catalog.rest.scan_planning import StorageCredential
from pyiceberg.io import (
    ADLS_CREDENTIAL,
    ADLS_SAS_TOKEN,
    ADLS_TOKEN,
    AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY,
    AWS_SESSION_TOKEN,
    GCS_TOKEN,
    S3_ACCESS_KEY_ID,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
    S3_SIGNER,
)
from pyiceberg.io.fsspec import SCHEME_TO_FS, FsspecFileIO, _adls
from pyiceberg.typedef import Properties
from requests import Session
from requests.exceptions import HTTPError

from volley.iceberg.pyiceberg_private.sigv4 import SigningAdapter, Signs
from volley.iceberg.pyiceberg_private.tokens import SignIn, token_end

__all__ = ["FILE_IO", "VENDED", "Asking", "Given", "RenewingFileIO", "Vended", "are_vended", "nearest"]

FILE_IO = f"{__name__}.RenewingFileIO"
"""The name by which pyiceberg loads `RenewingFileIO`."""
VENDED = "volley.vended"
"""The property of a FileIO that has its `Given`."""

_KEYS = (S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY, S3_SESSION_TOKEN)
_BY_HOST = ("abfs", "abfss")
_CLIENT_KEYS = (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN)
_CREDENTIALS = (*_KEYS, *_CLIENT_KEYS, GCS_TOKEN, ADLS_SAS_TOKEN, ADLS_TOKEN)
_ENDS = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at", "adls.sas-token-expires-at-ms")
# The shortest life that AWS gives a session is 15 minutes.
_UNKNOWN_SECONDS = 600.0
_MARGIN_SECONDS = 300.0
_AGAIN_SECONDS = 5.0
# The last time that Python's dates know, in seconds since the epoch.
_LAST_TIME = 253_402_300_799.0
# What S3 says of keys that have ended; of a HEAD it says the status alone.
_ENDED = ("ExpiredToken", "400")

_log = logging.getLogger(__name__)


def are_vended(properties: Mapping[str, Any]) -> bool:
    """Return True if there are credentials of a limited time among a table's properties."""
    return any(
        name in (S3_SESSION_TOKEN, GCS_TOKEN, ADLS_TOKEN) or name.startswith(ADLS_SAS_TOKEN) for name in properties
    )


@dataclass(frozen=True)
class Asking:
    """How to ask a REST catalog for new credentials of a table. It travels to tasks, which ask for themselves.

    Args:
        urls: The addresses: that of the table's credentials, if the catalog has one, and that of the table.
        location: The place that the credentials have to be good for.
        manager: What signs in to the catalog.
        headers: The headers of each request.
        verify: The file of authorities that its certificate is checked by; True = those of the system.
        cert: The client's certificate, if the catalog asks for one.
        timeouts: The timeouts of a connection and of a response, in seconds.
        signs: How the requests are signed; None = they are not.
        plan_id: The plan of a scan whose files the credentials are for; None = all files of the table.
    """

    urls: tuple[str, ...]
    location: str
    manager: AuthManager = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    verify: Any
    cert: Any = field(repr=False)
    timeouts: tuple[float, float]
    signs: Signs | None = None
    plan_id: str | None = None

    def __call__(self) -> dict[str, Any]:
        """Return the credentials as properties of a FileIO.

        Raises:
            OSError: If the catalog does not give any.
        """
        with Session() as session:
            session.headers.update(self.headers)
            session.verify, session.cert, session.auth = self.verify, self.cert, SignIn(self.manager)
            if self.signs is not None:
                self._sign(session, self.signs)
            # A parameter without a value is not sent.
            asked = {"snapshots": "refs", "planId": self.plan_id}
            for url in self.urls:
                response = session.get(url, params=asked, timeout=self.timeouts)
                # Some announce the address of credentials, and don't serve it.
                if response.status_code not in (400, 404, 405, 501):
                    break
        try:
            response.raise_for_status()
            answer = response.json()
            several = [StorageCredential.model_validate(each) for each in answer.get("storage-credentials") or ()]
            best = RestCatalog._resolve_storage_credentials(several, self.location)
            found = {**(answer.get("config") or {}), **best}
        except (HTTPError, ValueError, AttributeError) as error:
            raise OSError(f"the catalog gave no new credentials for {self.location}: {error}") from error
        if not are_vended(found):
            raise OSError(f"the catalog gave no new credentials for {self.location}: its answer has none")
        return found

    def _sign(self, session: Session, signs: Signs) -> None:
        """Have the requests of a session signed by the keys that this process has."""
        from botocore.exceptions import BotoCoreError

        try:
            adapter = SigningAdapter(signs)
            has_keys = adapter.has_keys
        except BotoCoreError as error:
            raise OSError(f"AWS' credentials to ask the catalog with, for {self.location}: {error}") from error
        if not has_keys:
            raise OSError(f"there are no credentials of AWS to ask the catalog with, for {self.location}")
        session.mount(signs.uri, adapter)


class Vended:
    """Credentials of a table's files, which are asked for anew before they end.

    Args:
        asking: How to ask.
        properties: Those that the catalog has given with the table.
    """

    def __init__(self, asking: Callable[[], dict[str, Any]], properties: Mapping[str, Any]) -> None:
        self._asking = asking
        self._lock = threading.Lock()
        self._take(properties)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def _take(self, properties: Mapping[str, Any], ends: float | None = None) -> None:
        now = time.time()
        self._properties = dict(properties)
        self._ends = _end_of(properties, now) if ends is None else ends
        lives = self._ends - now
        self._due = self._ends - min(_MARGIN_SECONDS, lives / 4)

    @property
    def is_due(self) -> bool:
        """True if it is time to ask for others."""
        return time.time() >= self._due

    @property
    def ends(self) -> datetime:
        """When those that are held end."""
        return datetime.fromtimestamp(self._ends, UTC)

    def current(self) -> dict[str, Any]:
        """Return credentials that are good now.

        Raises:
            OSError: If they have ended, and the catalog gives no others.
        """
        with self._lock:
            if self.is_due:
                self._renew()
            return self._properties

    def ask_again(self) -> None:
        """Ask for others at the next request: a storage has refused those that are held."""
        self._due = 0.0

    def _renew(self) -> None:
        try:
            self._take(self._asking())
            if self.is_due:
                # By this clock new ones have ended: it differs from the catalog's.
                self._take(self._properties, time.time() + _UNKNOWN_SECONDS)
        except OSError as error:
            if time.time() >= self._ends:
                raise
            # A catalog that can't answer now may answer before the end.
            self._due = min(self._ends, time.time() + _AGAIN_SECONDS)
            _log.warning("credentials of a storage are good until %s, new ones were not given: %s", self.ends, error)


def _end_of(properties: Mapping[str, Any], now: float) -> float:
    """Return the time at which credentials end, as the catalog says, in seconds since the epoch."""
    for name, value in properties.items():
        if name.startswith(_ENDS):
            try:
                end = float(value) / 1000
            except (TypeError, ValueError):
                break
            return end if 0 <= end <= _LAST_TIME else now + _UNKNOWN_SECONDS
    # Entra's tokens tell it themselves; no property does.
    own = token_end(str(properties.get(ADLS_TOKEN, "")))
    return now + _UNKNOWN_SECONDS if own is None else own


Given = Mapping[str, Vended | Mapping[str, Any]]
"""The credentials that a catalog has given for a table's files, by the prefix of the places that they are good for.

Those under "" are for all other places. Credentials that can't be asked for anew are plain properties.
"""


def nearest(prefixes: Iterable[str], location: str) -> str:
    """Return the longest of the prefixes that a location has; an empty text if it has none of them."""
    return max((prefix for prefix in prefixes if location.startswith(prefix)), key=len, default="")


class RenewingFileIO(FsspecFileIO):
    """Files on storages whose credentials are asked for anew before they end, also while a file is open.

    Each file is reached with the credentials of its place.
    """

    def _get_fs_from_uri(self, uri: Any, location: str = "") -> AbstractFileSystem:
        given: Given = self.properties.get(VENDED, {})
        prefix = nearest(given, location)
        if not prefix:
            return super()._get_fs_from_uri(uri, location)
        known: dict[Any, AbstractFileSystem] = vars(self._thread_locals).setdefault("volley_places", {})
        key = prefix, uri.scheme, uri.hostname if uri.scheme in _BY_HOST else None
        if key not in known:
            known[key] = self._with(given[prefix], *key[1:])
        return known[key]

    def _get_fs(self, scheme: str, hostname: str | None = None) -> AbstractFileSystem:
        return self._with(self.properties.get(VENDED, {}).get(""), scheme, hostname)

    def _with(self, given: Vended | Mapping[str, Any] | None, scheme: str, hostname: str | None) -> AbstractFileSystem:
        """Return the file system of one place."""
        bare = {name: value for name, value in self.properties.items() if name != VENDED}
        if isinstance(given, Vended) and scheme in _FAMILIES:
            return _FAMILIES[scheme]({**bare, **given.current()}, given, scheme, hostname)
        if given is None or isinstance(given, Vended):
            return super()._get_fs(scheme, hostname)
        others = {name: value for name, value in bare.items() if not name.startswith(_CREDENTIALS)}
        return FsspecFileIO({**others, **given})._get_fs(scheme, hostname)


def _s3(properties: Properties, vended: Vended, scheme: str, hostname: str | None) -> AbstractFileSystem:
    from aiobotocore.session import AioSession

    # Who has keys signs with them.
    bare = {name: value for name, value in properties.items() if name not in (*_KEYS, *_CLIENT_KEYS, S3_SIGNER)}
    session: Any = AioSession()
    session._credentials = _s3_credentials(vended)
    session.register("needs-retry.s3", partial(_again, vended))
    plain: Any = SCHEME_TO_FS[scheme](bare)
    made: AbstractFileSystem = type(plain)(**{**plain.storage_options, "session": session, **_NOT_KEPT})
    return made


def _again(vended: Vended, response: Any, attempts: int, **_: Any) -> float | None:
    """Return the seconds after which a request is sent again, once, whose keys had ended when it arrived.

    They may end on its way, or earlier than the catalog has said; each attempt is signed anew.
    """
    code = response[1].get("Error", {}).get("Code") if response is not None else None
    if code not in _ENDED or attempts > 1:
        return None
    vended.ask_again()
    return 0.0


# Whoever holds credentials of a time of its own shares its file system with nobody.
_NOT_KEPT = {"skip_instance_cache": True}


def _s3_credentials(vended: Vended) -> Any:
    from aiobotocore.credentials import AioCredentials
    from botocore.credentials import ReadOnlyCredentials

    class Credentials(AioCredentials):  # type: ignore[misc]
        async def get_frozen_credentials(self) -> ReadOnlyCredentials:
            # Asking waits for an answer: meanwhile other requests go on.
            given = await asyncio.to_thread(vended.current) if vended.is_due else vended.current()
            return ReadOnlyCredentials(*(given.get(name) for name in _KEYS))

    first = vended.current()
    return Credentials(*(first.get(name) for name in _KEYS))


def _gs(properties: Properties, vended: Vended, scheme: str, hostname: str | None) -> AbstractFileSystem:
    from google.auth.credentials import Credentials

    class Renewed(Credentials):
        def __init__(self) -> None:
            Credentials.__init__(self)  # type: ignore[no-untyped-call]
            self.refresh(None)

        def refresh(self, request: Any) -> None:
            self.token = vended.current()[GCS_TOKEN]
            # Google's clients compare it with the time of day without a zone.
            self.expiry = vended.ends.replace(tzinfo=None)

    return _forgotten(SCHEME_TO_FS[scheme]({**properties, GCS_TOKEN: Renewed()}))


def _azure(properties: Properties, vended: Vended, scheme: str, hostname: str | None) -> AbstractFileSystem:
    bare = {name: value for name, value in properties.items() if not name.startswith((ADLS_SAS_TOKEN, ADLS_TOKEN))}
    given = vended.current()
    credential = _azure_token(vended) if ADLS_TOKEN in given else _azure_signature(vended)
    return _forgotten(_adls({**bare, ADLS_CREDENTIAL: credential}, hostname))


def _azure_token(vended: Vended) -> Any:
    from azure.core.credentials import AccessToken
    from azure.core.credentials_async import AsyncTokenCredential

    class Renewed(AsyncTokenCredential):
        async def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
            given = await asyncio.to_thread(vended.current)
            return AccessToken(given[ADLS_TOKEN], int(vended.ends.timestamp()))

        async def close(self) -> None:
            pass

        async def __aexit__(self, *error: Any) -> None:
            pass

    return Renewed()


def _azure_signature(vended: Vended) -> Any:
    from azure.core.credentials import AzureSasCredential

    class Renewed(AzureSasCredential):
        @property
        def signature(self) -> str:
            return _sas(vended.current())

    return Renewed(_sas(vended.current()))


def _sas(properties: Mapping[str, Any]) -> str:
    """Return the shared access signature among properties, under its own name or with the account's after it."""
    tokens = (
        value for name, value in properties.items() if name == ADLS_SAS_TOKEN or name.startswith(f"{ADLS_SAS_TOKEN}.")
    )
    return str(next(tokens)).removeprefix("?")


def _forgotten(files: AbstractFileSystem) -> AbstractFileSystem:
    """Return a file system that fsspec does not keep for others with the same settings."""
    kept: Any = type(files)
    kept._cache.pop(getattr(files, "_fs_token_", None), None)
    return files


_Family = Callable[[Properties, Vended, str, str | None], AbstractFileSystem]
_FAMILIES: dict[str, _Family] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), _s3),
    **dict.fromkeys(("gs", "gcs"), _gs),
    **dict.fromkeys(("abfs", "abfss"), _azure),
}
