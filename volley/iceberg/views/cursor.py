"""What a view's table stands for: the snapshots of its sources, in a property written with the rows."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter
from pyiceberg.table import Table

from volley.errors import PlanError
from volley.plan import nodes
from volley.plan.queried import described

__all__ = ["CURSOR", "MODE", "QUERY", "VIEW", "Cursor", "SourcePosition", "fingerprint"]

VIEW = "volley.view"
"""The view's name: a table property, and in the summary of each of its snapshots."""
CURSOR = "volley.view.cursor"
"""The cursor as JSON: a table property, and in the summary of each of the view's snapshots."""
QUERY = "volley.view.query"
"""The query as text, a table property for people."""
MODE = "volley.view.mode"
"""How a refresh was done, in its snapshot's summary: full or incremental."""

_VERSION = 1


@dataclass(frozen=True)
class SourcePosition:
    """A source's snapshot.

    Args:
        uuid: Its uuid: a table made anew has another one.
        snapshot: The snapshot's id; None = the table had none.
        committed_at: When that was committed, in milliseconds since 1970; 0 without a snapshot.
        columns: The field id and type of each column that the query uses.
    """

    table: str
    uuid: str
    snapshot: int | None
    committed_at: int
    columns: Mapping[str, str]


@dataclass(frozen=True)
class Cursor:
    """What a view's table stands for.

    Args:
        sources: Its sources' snapshots, in plan order.
        snapshot: The last snapshot of the table that the view wrote; None = it has written no row yet.
        refreshed_at: When the refresh read its sources, in milliseconds since 1970.
    """

    view: str
    query: str
    sources: tuple[SourcePosition, ...]
    refresh: int
    snapshot: int | None
    refreshed_at: int
    attempt: str = field(default_factory=lambda: str(uuid.uuid4()))

    @classmethod
    def of(cls, table: Table) -> Cursor | None:
        """Return the cursor of a view's table; None if the table is none of a view."""
        text, name = table.properties.get(CURSOR), ".".join(table.name())
        if text is None:
            return None
        try:
            if (version := json.loads(text)["version"]) != _VERSION:
                raise PlanError(
                    f"table {name} has a view's cursor of version {version}, not {_VERSION}",
                    hint="refresh it with the Volley that wrote it, or drop the table",
                )
            return _CURSOR.validate_json(text)
        except (ValueError, TypeError, LookupError) as error:
            raise PlanError(
                f"property {CURSOR!r} of table {name}, which says what the view stands for, is damaged: {text!r}",
                hint="drop the table: the next refresh makes it anew",
            ) from error

    def to_json(self) -> str:
        """Return the cursor as JSON."""
        return json.dumps({"version": _VERSION, **asdict(self)})


_CURSOR = TypeAdapter(Cursor)


def fingerprint(query: nodes.Node) -> str:
    """Return a text that is the same for equal queries only."""
    return hashlib.sha256(described(query).encode()).hexdigest()[:16]
