"""Tables that a REST catalog has tagged: it is asked whether they have changed, instead of for all their metadata."""

from __future__ import annotations

import re
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.catalog import TOKEN, Catalog
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier, Properties
from requests import Response

from volley.errors import VolleyError
from volley.iceberg.pyiceberg_private.guarded import check_snapshots, share_metadata, shared
from volley.iceberg.pyiceberg_private.renewing import VENDED, Vended, are_vended

__all__ = ["Tagged", "TaggedTables"]

# RFC 9110, 8.8.3. Iceberg's adapter up to 1.11 leaves the quotes out: that is no tag, and none is sent back.
_TAG = re.compile(r'(W/)?"[\x21\x23-\x7e\x80-\xff]*"')
_MOST_TABLES = 1000


@dataclass(frozen=True)
class Tagged:
    """A table as its catalog has answered it, with the catalog's tag for that state."""

    tag: str
    metadata: TableMetadata
    location: str
    io: FileIO
    config: Properties

    def table(self, identifier: Identifier, catalog: Catalog) -> Table:
        """Return the table, which has not changed."""
        return Table(identifier, self.metadata, self.location, self.io, catalog, self.config)


class TaggedTables:
    """The tables of a catalog as it has answered them last.

    A table whose credentials end, and are not asked for anew by whoever holds them, is not kept: its answer has others.
    """

    def __init__(self) -> None:
        self._tables: OrderedDict[Identifier, Tagged] = OrderedDict()

    def of(self, identifier: Identifier) -> Tagged | None:
        """Return a table that is kept; None if it is not."""
        return self._tables.get(identifier)

    def keep(self, table: Table, answer: TableResponse, response: Response) -> None:
        """Keep a table that was loaded, if the answer has a tag."""
        self.forget(table.name())
        tag = _tag_of(response)
        if tag is not None and _lasts(table.io, answer):
            share_metadata(table)
            self._keep(table.name(), Tagged(tag, table.metadata, table.metadata_location, table.io, table.config))

    def forget(self, identifier: Identifier) -> Tagged | None:
        """Forget a table, as before a commit: if that fails, its whole metadata tells what has landed."""
        return self._tables.pop(identifier, None)

    def committed(self, before: Tagged | None, table: Table, answer: CommitTableResponse, response: Response) -> None:
        """Keep the table that the answer to a commit shows, if it was kept `before`."""
        tag = _tag_of(response)
        if before is None or tag is None:
            return
        now = replace(before, tag=tag, metadata=shared(answer.metadata), location=answer.metadata_location)
        # The commit has landed: whoever loads the table is told what is wrong with it.
        with suppress(VolleyError):
            check_snapshots(".".join(table.name()), now.metadata)
            self._keep(table.name(), now)

    def _keep(self, identifier: Identifier, tagged: Tagged) -> None:
        self._tables[identifier] = tagged
        if len(self._tables) > _MOST_TABLES:
            self._tables.popitem(last=False)


def _tag_of(response: Any) -> str | None:
    tag = response.headers.get("ETag")
    return tag if tag is not None and _TAG.fullmatch(tag) else None


def _lasts(io: FileIO, answer: TableResponse) -> bool:
    """Return True if nothing that the catalog has given with a table ends before the table changes."""
    several = [answer.config, *(each.config for each in answer.storage_credentials)]
    if TOKEN in answer.config:
        return False
    given = io.properties.get(VENDED, {}).values()
    return not any(map(are_vended, several)) or (
        bool(given) and all(isinstance(each, Vended) or not are_vended(each) for each in given)
    )
