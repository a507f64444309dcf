"""pyiceberg's REST catalog with timeouts, which loads tables with all their snapshots."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import rest
from pyiceberg.catalog.rest.auth import OAuth2AuthManager
from pyiceberg.io import PY_IO_IMPL, S3_ACCESS_KEY_ID, S3_SIGNER, FileIO
from pyiceberg.table import CommitTableResponse, Table
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
from requests import Session

from volley.iceberg.pyiceberg_private.foreign import REFUSED, mend
from volley.iceberg.pyiceberg_private.guarded import GuardedCatalog, check_snapshots
from volley.iceberg.pyiceberg_private.timeouts import (
    FILE_IO,
    SIGNER,
    SIGNS_BY_REST,
    TimeoutAdapter,
    TokenProvider,
    with_timeouts,
)

__all__ = ["TimeoutRestCatalog"]

_SIGNS = "s3.remote-signing-enabled"


class TimeoutRestCatalog(GuardedCatalog, rest.RestCatalog):
    """A REST catalog with timeouts, which loads tables with all their snapshots.

    Args:
        name: The catalog's name.
        timeouts: The timeouts of a connection and of a response, in seconds.
        properties: The properties for pyiceberg.
    """

    adapter: type[TimeoutAdapter] = TimeoutAdapter

    def __init__(self, name: str, timeouts: tuple[float, float], **properties: str) -> None:
        self._timeouts = timeouts
        super().__init__(name, **properties)

    def _fetch_config(self) -> None:
        super()._fetch_config()
        # With the snapshots of references alone, files of the others would seem to be orphans.
        self.properties[rest.SNAPSHOT_LOADING_MODE] = "all"

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        settings = {**self.properties, **properties}
        is_told = property_as_bool(settings, _SIGNS, False) and not settings.get(S3_ACCESS_KEY_ID)
        # pyiceberg signs through the catalog only if it is told to.
        if settings.get(S3_SIGNER, SIGNS_BY_REST if is_told else None) == SIGNS_BY_REST:
            properties = {PY_IO_IMPL: FILE_IO, **properties, S3_SIGNER: SIGNER}
        return super()._load_file_io(properties, location)

    def load_table(self, identifier: str | Identifier) -> Table:
        try:
            table: Table = super().load_table(identifier)
        except REFUSED as refusal:
            table = self._load_foreign(identifier, refusal)
        check_snapshots(".".join(table.name()), table.metadata)
        return table

    def _load_foreign(self, identifier: str | Identifier, refusal: Exception) -> Table:
        """Load a table whose metadata pyiceberg refuses; raise its refusal if the metadata can't be mended."""
        names = self._split_identifier_for_path(identifier)
        url = self.url(rest.Endpoints.load_table, prefixed=True, **names)
        answer = self._session.get(url, params={"snapshots": "all"})
        answer.raise_for_status()
        try:
            content = answer.json()
            reason = mend(content["metadata"])
            response = rest.TableResponse.model_validate(content)
        except (*REFUSED, ValueError, TypeError, KeyError, AttributeError):
            raise refusal from refusal.__cause__
        self.foreign[response.metadata_location] = reason
        return self._response_to_table(self.identifier_to_tuple(identifier), response)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates; make a new branch before the first rows for it, which might else land on main."""
        for branch in _new_branches(table, updates):
            requirements = self._with_branch(table, requirements, branch)
        return super().commit_table(table, requirements, updates)

    def _with_branch(
        self, table: Table, requirements: tuple[TableRequirement, ...], branch: SetSnapshotRefUpdate
    ) -> tuple[TableRequirement, ...]:
        """Make a branch, and return the requirements of what is committed to it then."""
        absent, made = (
            AssertRefSnapshotId.model_validate({"ref": branch.ref_name, "snapshot-id": snapshot_id})
            for snapshot_id in (None, branch.snapshot_id)
        )
        super().commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid), absent), (branch,))
        return tuple(made if requirement == absent else requirement for requirement in requirements)

    def _create_session(self) -> Session:
        session = with_timeouts(super()._create_session(), self._timeouts, self.adapter)
        if isinstance(self._auth_manager, OAuth2AuthManager):
            self._auth_manager.token_provider = TokenProvider(self._auth_manager.token_provider, self._timeouts)
        return session

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> Any:
        # This requests a token before the session is returned.
        return super()._create_legacy_oauth2_auth_manager(with_timeouts(session, self._timeouts, self.adapter))


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
