"""The tables of a routed sink, kept with the job's checkpoint: which keys map to which table, each once."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

from volley.errors import ConfigError, PlanError
from volley.iceberg.route.routing import SEPARATOR, TableNames
from volley.storage.durable import write_durably
from volley.storage.paths import filesystem
from volley.storage.remembered import Record
from volley.storage.state_formats import ROUTED_TABLES
from volley.types.arrow import read_schema

__all__ = ["EarlierRows", "KnownTable", "KnownTables"]

EarlierRows = Literal["keep", "refuse", "delete"]
"""What to do with a table that has rows of earlier queries of the job when its first rows come."""


@dataclass
class KnownTable:
    """One table.

    Args:
        number: Its number, by which the files of its parked rows are found.
        uuid: Its uuid; None = no row has been written to it yet.
        key_fields: The primary key that its packed rows have told.
        schema: The columns of its packed rows so far, in Arrow's IPC format; None = none yet, or rows are not packed.
        epoch: The last epoch that it had when a run ended, to notice a table that was put back from an old copy.
    """

    number: int
    key: str
    identifier: tuple[str, ...]
    uuid: str | None = None
    key_fields: tuple[str, ...] = ()
    schema: bytes | None = None
    epoch: int | None = None

    @property
    def name(self) -> str:
        """Namespace and name, joined by dots."""
        return ".".join(self.identifier)


@dataclass
class KnownTables:
    """All tables of a sink. `save` writes them to the sink's state folder."""

    url: str
    tables: dict[str, KnownTable] = field(default_factory=dict)
    earlier_rows: EarlierRows = "keep"
    _written: bytes = b""

    @classmethod
    def load(cls, state: str) -> KnownTables:
        """Read the tables of a state folder; none if it has none yet."""
        url = f"{state}/tables.json"
        return Record(url, ROUTED_TABLES, partial(_tables, url)).read() or cls(url)

    def save(self) -> None:
        """Write the tables, unless they are written already."""
        tables = [asdict(table) for table in self.tables.values()]
        for table in tables:
            del table["number"]
            table["schema"] = table["schema"] and base64.b64encode(table["schema"]).decode()
        record = ROUTED_TABLES.dump({"earlier_rows": self.earlier_rows, "tables": tables})
        if record != self._written:
            write_durably(*filesystem(self.url, {}), record)
            self._written = record

    def add(self, keys: Iterable[str], names: TableNames, limit: int) -> list[KnownTable]:
        """Add the tables of new keys, and return them.

        Raises:
            PlanError: If two keys name one table; catalogs that ignore case count.
            ConfigError: If there are more tables than the limit.
        """
        known = {table.name.casefold(): table for table in self.tables.values()}
        new: list[KnownTable] = []
        for key in sorted(keys):
            table = KnownTable(len(self.tables) + len(new), key, names.identifier(key))
            other = known.setdefault(table.name.casefold(), table)
            if other is not table:
                raise PlanError(
                    f"rows of {_shown(key)} and of {_shown(other.key)} both name table {table.name} "
                    "(upper and lower case are the same for some catalogs)",
                    hint='tell them apart in the route, or join them on purpose: routed(col("name").str.lower())',
                )
            new.append(table)
        if len(known) > limit:
            raise ConfigError(
                f"rows name {len(known)} tables, and the limit is {limit}; the last one is {new[-1].name}",
                hint="raise the sink's limit, or route by a column with fewer values",
            )
        self.tables.update({table.key: table for table in new})
        return new


def _tables(url: str, record: dict[str, Any]) -> KnownTables:
    tables = [_table(number, **values) for number, values in enumerate(record["tables"])]
    return KnownTables(url, {table.key: table for table in tables}, record["earlier_rows"])


def _table(number: int, identifier: list[str], key_fields: list[str], schema: str | None, **values: Any) -> KnownTable:
    columns = None if schema is None else base64.b64decode(schema)
    if columns is not None:
        read_schema(columns)
    return KnownTable(number, identifier=tuple(identifier), key_fields=tuple(key_fields), schema=columns, **values)


def _shown(key: str) -> str:
    return repr(key.replace(SEPARATOR, ", "))
