"""pyiceberg's REST catalog with timeouts, which loads tables with all snapshots."""

from __future__ import annotations

import copy
import json
import pickle
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

from pyiceberg.catalog import TOKEN, rest
from pyiceberg.catalog.rest.auth import AUTH_MANAGER, AuthManager, OAuth2AuthManager
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
)
from pyiceberg.io import PY_IO_IMPL, S3_ACCESS_KEY_ID, S3_SIGNER, FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.table import CommitTableRequest, CommitTableResponse, Namespace, Table, TableIdentifier
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.utils.properties import property_as_bool
from requests import Response, Session
from requests.exceptions import HTTPError, RequestException
from tenacity import retry

from volley.errors import CatalogAuthError, ConfigError
from volley.iceberg.pyiceberg_private.conditional import TaggedTables
from volley.iceberg.pyiceberg_private.foreign import REFUSED, mend
from volley.iceberg.pyiceberg_private.guarded import (
    GuardedCatalog,
    TableChanges,
    check_known,
    check_snapshots,
    not_before,
)
from volley.iceberg.pyiceberg_private.idempotency import IdempotencyKeys, KeyedAdapter
from volley.iceberg.pyiceberg_private.renewing import FILE_IO as RENEWING
from volley.iceberg.pyiceberg_private.renewing import VENDED, Asking, Given, RenewingFileIO, Vended, are_vended, nearest
from volley.iceberg.pyiceberg_private.reports import REPORTS, REPORTS_ENABLED, commit_report
from volley.iceberg.pyiceberg_private.server_plans import Method, scan_tasks
from volley.iceberg.pyiceberg_private.signing import FILE_IO, SIGNER, SIGNS_BY_REST
from volley.iceberg.pyiceberg_private.sigv4 import SigningAdapter, Signs
from volley.iceberg.pyiceberg_private.timeouts import TimeoutAdapter, with_timeouts
from volley.iceberg.pyiceberg_private.tokens import BearerManager, HandedManager, SignIn, TokenProvider, TokenServer
from volley.metrics.sender import Sender

__all__ = ["TimeoutRestCatalog"]

_F = TypeVar("_F", bound=Callable[..., Any])
_UNANNOUNCED = set(rest.DEFAULT_ENDPOINTS)

_SIGNS = "s3.remote-signing-enabled"
_EXCHANGES = "token-exchange-enabled"
_METRICS = "namespaces/{namespace}/tables/{table}/metrics"
_reports = Sender("metrics", "report")


def _once_more(request: _F) -> _F:
    """Return a catalog's request that is sent again, once, with a new token where its own is refused.

    As pyiceberg does: a server may have answered a new token that is the refused one, within a second.
    """
    return cast(_F, retry(**cast(Any, rest._RETRY_ARGS))(request))


class TimeoutRestCatalog(GuardedCatalog, rest.RestCatalog):
    """A REST catalog with timeouts, which loads tables with all their snapshots.

    Args:
        timeouts: The timeouts of a connection and of a response, in seconds.
    """

    adapter: type[TimeoutAdapter] = TimeoutAdapter
    _takes_transactions: bool | None = None
    _keys: IdempotencyKeys | None = None

    def __init__(self, name: str, timeouts: tuple[float, float], **properties: str) -> None:
        self._timeouts = timeouts
        self._tagged = TaggedTables()
        self._scans: dict[Identifier, Hashable] = {}
        self._last = threading.local()
        super().__init__(name, **properties)

    def _fetch_config(self) -> None:
        super()._fetch_config()
        # pyiceberg has these two sets for a catalog that announces nothing.
        if self._supported_endpoints not in (_UNANNOUNCED, _UNANNOUNCED | set(rest.VIEW_ENDPOINTS)):
            self.endpoints = frozenset(map(str, self._supported_endpoints))
            self.takes_reports = REPORTS in self.endpoints and property_as_bool(self.properties, REPORTS_ENABLED, True)

    def _note_answer(self, response: Response, **_: Any) -> None:
        """Note this thread's last answer: pyiceberg does not pass on the headers of what a commit was answered."""
        self._last.response = response

    def _note_keys(self, response: Response, **_: Any) -> None:
        """Note what pyiceberg does not read from the catalog's settings: that it knows requests again by their keys."""
        with suppress(ValueError, TypeError, AttributeError):
            lifetime = response.json().get("idempotency-key-lifetime")
            if response.ok and isinstance(lifetime, str):
                self._keys = IdempotencyKeys(lifetime)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        settings = {**self.properties, **properties}
        is_told = property_as_bool(settings, _SIGNS, False) and not settings.get(S3_ACCESS_KEY_ID)
        # pyiceberg signs through the catalog only if it is told to.
        signs = settings.get(S3_SIGNER, SIGNS_BY_REST if is_told else None) in (SIGNS_BY_REST, SIGNER)
        if signs:
            properties = {PY_IO_IMPL: FILE_IO, **properties, S3_SIGNER: SIGNER}
        file_io = super()._load_file_io(properties, location)
        if not signs:
            # Files travel to tasks, what signs in to the catalog need not, and some of these can't.
            file_io.properties.pop(AUTH_MANAGER, None)
        elif self._auth_manager is not None:
            file_io.properties[AUTH_MANAGER] = _for_tasks(self._auth_manager)
        return file_io

    def _response_to_table(self, identifier_tuple: Identifier, table_response: rest.TableResponse) -> Table:
        table: Table = super()._response_to_table(identifier_tuple, table_response)
        given = self._given(identifier_tuple, table_response)
        if type(table.io) is FsspecFileIO and (
            len(given) > 1 or any(isinstance(each, Vended) for each in given.values())
        ):
            table.io = RenewingFileIO({**table.io.properties, PY_IO_IMPL: RENEWING, VENDED: given})
        return table

    def _given(self, identifier: Identifier, answer: rest.TableResponse) -> Given:
        """Return the credentials of a table's files, by place."""
        several = {each.prefix: each.config for each in answer.storage_credentials}
        given = self._by_place(identifier, answer.config, several)
        location = str(answer.metadata_location)
        if are_vended(answer.config):
            given.setdefault("", Vended(self._asking(identifier, location), answer.config))
        elif nearest(given, location):
            # As pyiceberg does, where a place has none of its own.
            given.setdefault("", given[nearest(given, location)])
        return given

    def _by_place(
        self,
        identifier: Identifier,
        config: Mapping[str, Any],
        several: Mapping[str, Mapping[str, Any]],
        plan_id: str | None = None,
    ) -> dict[str, Vended | Mapping[str, Any]]:
        """Return credentials by the prefix of the places that they are for, with the table's other settings."""
        settings = {prefix: {**config, **own} for prefix, own in several.items()}
        return {
            prefix: Vended(self._asking(identifier, prefix, plan_id), each) if are_vended(each) else each
            for prefix, each in settings.items()
        }

    def _asking(self, identifier: Identifier, location: str, plan_id: str | None = None) -> Asking:
        """Return how to ask for new credentials of a table's files, or of those of a plan."""
        names, session = self._split_identifier_for_path(identifier), self._session
        # Those of a plan are nowhere else.
        has_credentials = plan_id is not None or rest.Capability.V1_LOAD_CREDENTIALS in self._supported_endpoints
        paths = [*([rest.Endpoints.load_credentials] if has_credentials else []), rest.Endpoints.load_table]
        urls = tuple(self.url(path, prefixed=True, **names) for path in paths)
        headers = {name: str(value) for name, value in session.headers.items()}
        assert self._auth_manager is not None
        manager = _for_tasks(self._auth_manager)
        is_signed = property_as_bool(self.properties, rest.SIGV4, False)
        signs = Signs(self.uri, self.properties).for_tasks() if is_signed else None
        return Asking(urls, location, manager, headers, session.verify, session.cert, self._timeouts, signs, plan_id)

    def load_table(self, identifier: str | Identifier) -> Table:
        try:
            return self._load(self.identifier_to_tuple(identifier))
        except REFUSED as refusal:
            table = self._load_foreign(identifier, refusal)
        except NoSuchTableError:
            self._check_no_view(identifier)
            raise
        check_snapshots(".".join(table.name()), table.metadata)
        return table

    @_once_more
    def _load(self, identifier: Identifier) -> Table:
        """Load a table as pyiceberg does, with all snapshots; one that has not changed, without its metadata."""
        self._check_endpoint(rest.Capability.V1_LOAD_TABLE)
        url = self.url(rest.Endpoints.load_table, prefixed=True, **self._split_identifier_for_path(identifier))
        known = self._tagged.of(identifier)
        # With the snapshots of references alone, files of the others would seem to be orphans.
        asked = {"If-None-Match": known.tag} if known is not None else None
        response = self._session.get(url, params={"snapshots": "all"}, headers=asked)
        if response.status_code == 304 and known is not None:
            return known.table(identifier, self)
        try:
            response.raise_for_status()
        except HTTPError as error:
            _handle_non_200_response(error, {404: NoSuchTableError})
        answer = rest.TableResponse.model_validate_json(response.text)
        table = self._response_to_table(identifier, answer)
        check_snapshots(".".join(identifier), table.metadata)
        self._tagged.keep(table, answer, response)
        return table

    def scan_tasks(self, table: Table, request: Mapping[str, Any]) -> tuple[list[dict[str, Any]], FileIO | None]:
        self._check_endpoint(rest.Capability.V1_SUBMIT_TABLE_SCAN_PLAN)
        url = self.url(rest.Endpoints.load_table, prefixed=True, **self._split_identifier_for_path(table.name()))
        parts, plan_id = scan_tasks(partial(self._ask_plan, url), ".".join(table.name()), request)
        return parts, self._io_of_plan(table, parts[0].get("storage-credentials"), plan_id)

    def _io_of_plan(self, table: Table, credentials: Sequence[Any] | None, plan_id: str | None) -> FileIO | None:
        """Return what opens the files of a plan by its own credentials; None if it has none."""
        if not credentials or not isinstance(table.io, FsspecFileIO):
            return None
        several = {str(each["prefix"]): dict(each["config"]) for each in credentials}
        known = table.io.properties.get(VENDED, {})
        others = {"": known[""]} if "" in known else {}
        given = {**others, **self._by_place(table.name(), table.config, several, plan_id)}
        return RenewingFileIO({**table.io.properties, PY_IO_IMPL: RENEWING, VENDED: given})

    @_once_more
    def _ask_plan(self, url: str, method: Method, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        response = self._session.request(method, f"{url}/{path}", json=body)
        try:
            response.raise_for_status()
        except HTTPError as error:
            _handle_non_200_response(error, {})
        answer: dict[str, Any] = response.json() if response.content else {}
        return answer

    def _check_no_view(self, identifier: str | Identifier) -> None:
        """Raise ConfigError if what is no table is a view; one that a catalog does not tell of is asked for, too."""
        if self.endpoints is not None and rest.Capability.V1_LOAD_VIEW not in self._supported_endpoints:
            return
        names = self._split_identifier_for_path(identifier, rest.IdentifierKind.VIEW)
        try:
            answer = self._session.get(self.url(rest.Endpoints.load_view, prefixed=True, **names))
            is_view = answer.status_code == 200 and "view-uuid" in answer.json()["metadata"]
        except (RequestException, KeyError, TypeError):
            return
        if is_view:
            raise ConfigError(
                f"{'.'.join(self.identifier_to_tuple(identifier))} in catalog {self.uri} is a view, not a table",
                hint="name the table that it selects from, or ask for its rows by an engine that runs its text",
            )

    def _load_foreign(self, identifier: str | Identifier, refusal: Exception) -> Table:
        """Load a table whose metadata pyiceberg refuses; raise its refusal if the metadata can't be mended."""
        names = self._split_identifier_for_path(identifier)
        url = self.url(rest.Endpoints.load_table, prefixed=True, **names)
        answer = self._session.get(url, params={"snapshots": "all"})
        answer.raise_for_status()
        try:
            content = answer.json()
            reason = mend(".".join(self.identifier_to_tuple(identifier)), content["metadata"])
            response = rest.TableResponse.model_validate(content)
        except (*REFUSED, ValueError, TypeError, KeyError, AttributeError):
            raise refusal from refusal.__cause__
        self.foreign[response.metadata_location] = reason
        return self._response_to_table(self.identifier_to_tuple(identifier), response)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates; make a new branch before the first rows for it, which might else land on main.

        A table's own token signs in its commits: pyiceberg 0.12 puts it into the headers of all requests instead.
        """
        table, token = _without_token(table)
        before = self._tagged.forget(table.name())
        with self._sign_in.by(token):
            for branch in _new_branches(table, updates):
                requirements = self._with_branch(table, requirements, branch)
            began = time.perf_counter()
            answer = super().commit_table(table, requirements, updates)
        self._report_commit(table.name(), updates, time.perf_counter() - began)
        self._tagged.committed(before, table, answer, self._last.response)
        return answer

    def commits_tables(self) -> bool:
        """Return True if the catalog takes a commit of no table, as SeaweedFS does, which announces nothing."""
        if self._takes_transactions is None:
            status = self._session.post(self.url("transactions/commit"), json={"table-changes": []}).status_code
            if status >= 500 or status in (408, 429):
                return False  # until it is asked again
            self._takes_transactions = status == 204
        return self._takes_transactions

    def commit_tables(self, changes: Sequence[TableChanges]) -> None:
        """Commit changes of several tables, signed in as for the catalog: the request is of no single table."""
        body = {"table-changes": [self._change(*change) for change in changes]}
        for table, _, _ in changes:
            self._tagged.forget(table.name())
        began = time.perf_counter()
        response = self._session.post(self.url("transactions/commit"), json=body)
        seconds = time.perf_counter() - began
        if response.status_code in (500, 502, 504):
            raise CommitStateUnknownException(f"HTTP {response.status_code}: {response.text}")
        try:
            response.raise_for_status()
        except HTTPError as error:
            _handle_non_200_response(error, {409: CommitFailedException})
        for table, _, updates in changes:
            self._report_commit(table.name(), updates, seconds)

    def _report_commit(self, identifier: Identifier, updates: Sequence[TableUpdate], seconds: float) -> None:
        for snapshot in (update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate)):
            self.report(identifier, partial(commit_report, ".".join(identifier), snapshot, seconds))

    def report(self, identifier: Identifier, make: Callable[[], Mapping[str, Any]], scan: Hashable = None) -> None:
        is_known = scan is not None and self._scans.get(identifier) == scan
        if self.takes_reports and not is_known:
            if scan is not None:
                self._scans[identifier] = scan
            url = self.url(_METRICS, prefixed=True, **self._split_identifier_for_path(identifier))
            _reports.send(partial(self._send_report, url, make))

    def _send_report(self, url: str, make: Callable[[], Mapping[str, Any]]) -> None:
        response = self._session.post(url, data=json.dumps(make()).encode())
        # If one is refused, so are the others.
        self.takes_reports = self.takes_reports and not 400 <= response.status_code < 429
        response.raise_for_status()

    def _change(
        self, table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]
    ) -> dict[str, Any]:
        """Return one table's part of the request; make a new branch before, as `commit_table` does."""
        check_known(table)
        bare, token = _without_token(table)
        with self._sign_in.by(token):
            for branch in _new_branches(table, tuple(updates)):
                requirements = self._with_branch(bare, tuple(requirements), branch)
        *namespace, name = table.name()
        request = CommitTableRequest(
            identifier=TableIdentifier(namespace=Namespace(namespace), name=name),
            requirements=tuple(requirements),
            updates=not_before(table.metadata, updates),
        )
        return json.loads(request.model_dump_json())  # type: ignore[no-any-return]

    def _with_branch(
        self, table: Table, requirements: tuple[TableRequirement, ...], branch: SetSnapshotRefUpdate
    ) -> tuple[TableRequirement, ...]:
        """Make a branch, and return the requirements of what is committed to it then."""
        absent, present = (
            AssertRefSnapshotId.model_validate({"ref": branch.ref_name, "snapshot-id": snapshot_id})
            for snapshot_id in (None, branch.snapshot_id)
        )
        super().commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid), absent), (branch,))
        return tuple(present if requirement == absent else requirement for requirement in requirements)

    def _create_session(self) -> Session:
        session = with_timeouts(super()._create_session(), self._timeouts, self.adapter)
        if not hasattr(self, "_supported_endpoints"):
            session.hooks["response"].append(self._note_keys)
        else:
            session.hooks["response"].append(self._note_answer)
            if self._keys is not None:
                for prefix, adapter in list(session.adapters.items()):
                    session.mount(prefix, KeyedAdapter(adapter, self._keys))
        manager = self._auth_manager
        assert manager is not None
        if isinstance(manager, OAuth2AuthManager):
            manager.token_provider = TokenProvider(manager.token_provider, self._timeouts)
        known = self.__dict__.get("_sign_in")
        session.auth = known if known is not None and known.auth_manager is manager else SignIn(manager)
        self._sign_in: SignIn = session.auth
        return session

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> Any:
        url = self.auth_url if self.properties.get(rest.CREDENTIAL) or self.properties.get(TOKEN) else ""
        server = TokenServer(url, dict(session.headers), session.verify, session.cert, self._timeouts)
        signs_in = (self.properties.get(rest.CREDENTIAL), self.properties.get(TOKEN))
        exchanges = property_as_bool(self.properties, _EXCHANGES, False)
        manager = BearerManager(server, *signs_in, self._extract_optional_oauth_params(), exchanges)
        # The request for the settings had a session of its own: its token is still good, unless they name another.
        known = self._auth_manager
        return known if isinstance(known, BearerManager) and known.settings == manager.settings else manager

    def _init_sigv4(self, session: Session) -> None:
        adapter = SigningAdapter(Signs(self.uri, self.properties))
        if not adapter.has_keys:
            raise CatalogAuthError(
                f"catalog {self.uri} takes requests that are signed by AWS' credentials, and there are none",
                hint="give keys to the S3Storage, or set profile or AWS' environment variables",
            )
        session.mount(self.uri, adapter)


def _without_token(table: Table) -> tuple[Table, str | None]:
    """Return a table without its own token, and the token."""
    token = table.config.get(TOKEN)
    if token is None:
        return table, None
    bare = copy.copy(table)
    bare.config = {name: value for name, value in table.config.items() if name != TOKEN}
    return bare, token


def _for_tasks(manager: AuthManager) -> AuthManager:
    """Return what signs in to the catalog as tasks can have it."""
    try:
        pickle.dumps(manager)
    except Exception:  # whatever a manager of a user's own raises
        return HandedManager(manager)
    return manager


def _new_branches(table: Table, updates: tuple[TableUpdate, ...]) -> list[SetSnapshotRefUpdate]:
    """Return updates that make the new branches of a commit, each at the snapshot before its first one."""
    added = (update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate))
    bases = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in added}
    return [
        update.model_copy(update={"snapshot_id": base})
        for update in updates
        if isinstance(update, SetSnapshotRefUpdate)
        and update.type == SnapshotRefType.BRANCH
        and update.ref_name not in table.metadata.refs
        and (base := bases.get(update.snapshot_id)) is not None
    ]
