"""pyiceberg's REST catalog with workarounds for Nessie."""

from __future__ import annotations

import json
from typing import Any

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from volley.iceberg.pyiceberg_private.rest import TimeoutRestCatalog
from volley.iceberg.pyiceberg_private.snapshots import add_empty_snapshot
from volley.iceberg.pyiceberg_private.timeouts import TimeoutAdapter

__all__ = ["TimeoutNessieCatalog"]


class _AddLastColumnId(TimeoutAdapter):
    """Adds the last column id to requests with a new schema: Nessie 0.99 requires it, pyiceberg 0.12 omits it."""

    def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        body = request.body
        if isinstance(body, bytes) and b'"add-schema"' in body:
            request.prepare_body(_with_last_column_ids(body), None)
        return super().send(request, *args, **kwargs)


def _with_last_column_ids(body: bytes) -> bytes:
    """Return the body of a commit with the last column id of each new schema."""
    commit = json.loads(body)
    for update in (update for change in commit.get("table-changes", [commit]) for update in change["updates"]):
        if update["action"] == "add-schema":
            update["last-column-id"] = Schema.model_validate(update["schema"]).highest_field_id
    return json.dumps(commit).encode()


class TimeoutNessieCatalog(TimeoutRestCatalog):
    """A Nessie catalog with timeouts, whose new tables get an empty snapshot.

    Nessie 0.99 does not check that a table still has *no* snapshot: of two clients that commit the first one at the
    same time, one would replace the other's rows. It does check from the second snapshot on.
    """

    adapter = _AddLastColumnId

    def create_table(self, identifier: str | Identifier, *args: Any, **kwargs: Any) -> Table:
        transaction = self.create_table_transaction(identifier, *args, **kwargs)
        add_empty_snapshot(transaction)
        try:
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise TableAlreadyExistsError(str(error)) from error
        table: Table = self.load_table(identifier)
        return table
