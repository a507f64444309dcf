"""pyiceberg's REST catalog for Nessie: new schemas with the field it requires, tables with the snapshot it checks."""

from __future__ import annotations

import json
from typing import Any

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from volley.iceberg.pyiceberg_private.rest import Limited, LimitedRestCatalog

__all__ = ["LimitedNessieCatalog"]


class _Numbered(Limited):
    """Tells the highest column id of a new schema: Nessie 0.99 answers 500 without, pyiceberg 0.12 does not say it."""

    def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        body = request.body
        if isinstance(body, bytes) and b'"add-schema"' in body:
            request.prepare_body(_numbered(body), None)
        return super().send(request, *args, **kwargs)


def _numbered(body: bytes) -> bytes:
    """The body of a commit whose new schemas come with their highest column id."""
    commit = json.loads(body)
    for update in commit["updates"]:
        if update["action"] == "add-schema":
            update["last-column-id"] = Schema.model_validate(update["schema"]).highest_field_id
    return json.dumps(commit).encode()


class LimitedNessieCatalog(LimitedRestCatalog):
    """Nessie, whose requests end in time, and whose tables have a snapshot from the beginning.

    Nessie 0.99 does not check that a table still has *no* snapshot: of two clients that write its first one at the same
    moment, one would replace the other's rows. From the second on it does check.
    """

    adapter = _Numbered

    def create_table(self, identifier: str | Identifier, *args: Any, **kwargs: Any) -> Table:
        transaction = self.create_table_transaction(identifier, *args, **kwargs)
        transaction.update_snapshot().fast_append().commit()
        try:
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise TableAlreadyExistsError(str(error)) from error
        made: Table = self.load_table(identifier)
        return made
