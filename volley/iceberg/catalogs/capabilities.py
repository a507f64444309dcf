"""What a catalog can do, as a value: known by the catalog's name, and by the requests that a REST catalog announces."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Self

from volley.errors import ConfigError

__all__ = ["FEATURES", "Capabilities", "Feature"]

_TABLES = "/v1/{prefix}/namespaces/{namespace}/tables"
_ANOTHER = "keep the table in another catalog"


@dataclass(frozen=True)
class Feature:
    """One thing that a catalog can do, in words.

    Args:
        title: What it is, for lists and pages.
        lack: What is true of a catalog without it; completes the catalog's name to a sentence.
        way_out: What to do without it.
        endpoint: The request of the REST protocol that it needs; None = one that each catalog has.
    """

    title: str
    lack: str
    way_out: str
    endpoint: str | None = None


FEATURES = {
    "tables": Feature(
        "makes tables",
        "offers no request that makes a table",
        "make it by an engine that this catalog takes tables from",
        f"POST {_TABLES}",
    ),
    "namespaces": Feature(
        "makes namespaces",
        "does not offer a request that this needs: POST /v1/{prefix}/namespaces",
        "make the namespace by the catalog's own tools",
        "POST /v1/{prefix}/namespaces",
    ),
    "commits": Feature(
        "takes commits",
        "offers no request that changes a table",
        "write to a table of another catalog; this one can be read",
        f"POST {_TABLES}/{{table}}",
    ),
    "branches": Feature(
        "branches and tags of a table",
        "has no branches and tags of single tables",
        f"{_ANOTHER}; with Nessie, write to a branch of all tables, NessieCatalog(…, branch=…), and merge it there",
    ),
    "history": Feature("all snapshots of a table", "shows a table's last snapshot only", _ANOTHER),
    "nested_namespaces": Feature(
        "nested namespaces", "has one level of namespaces", 'namespace="db": the name of one level'
    ),
    "upper_case": Feature("upper case in names", "keeps names in lower case", "write the names in lower case"),
    "expiry": Feature(
        "expiry of snapshots, removal of files",
        "says that a table's files may not be deleted by its clients",
        "leave it to the catalog's own collection of files",
    ),
    "format_3": Feature("tables of format version 3", "makes tables up to format version 2", _ANOTHER),
    "bounds": Feature(
        "table properties that bound metadata",
        "refuses the table properties that bound a table's metadata",
        "let the catalog delete old metadata files and merge manifests",
    ),
    "transactions": Feature(
        "several tables in one commit",
        "commits to one table at a time",
        "let readers of several tables go by the epoch in each table's snapshots",
        "POST /v1/{prefix}/transactions/commit",
    ),
}
"""What can be missing, by the name of the field of `Capabilities`."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a catalog and its tables can do. True and False are known; None = the server alone tells.

    A job that needs what is False is refused before anything is written. What is None is tried: a catalog that refuses
    it is an error by name, and one that reports what it has not done is found out by its answer.

    Example:
        >>> from volley import NessieCatalog
        >>> NessieCatalog("http://nessie:19120/iceberg").capabilities.branches
        False
    """

    tables: bool | None = True
    namespaces: bool | None = True
    commits: bool | None = True
    branches: bool | None = True
    history: bool | None = True
    nested_namespaces: bool | None = True
    upper_case: bool | None = True
    expiry: bool | None = True
    format_3: bool | None = True
    bounds: bool | None = True
    transactions: bool | None = False

    def announced(self, endpoints: Collection[str] | None) -> Self:
        """Return what a REST catalog can do that announces these requests.

        Args:
            endpoints: Such as ``"POST /v1/{prefix}/namespaces"``; None = it announces nothing, as before Iceberg 1.7.
        """
        if endpoints is None:
            return self
        # What is False by the catalog's name stays so: a server may take a request, and not do what it says.
        known = {
            name: feature.endpoint in endpoints and getattr(self, name) is not False
            for name, feature in FEATURES.items()
            if feature.endpoint is not None
        }
        return replace(self, **known)

    @property
    def without(self) -> str:
        """What is known to be missing, such as ``"without nested namespaces"``; empty if nothing is.

        Commits of several tables are left out: they matter to jobs that write several tables, whose plans say it.
        """
        missing = [name for name in FEATURES if name != "transactions" and getattr(self, name) is False]
        return f"without {', '.join(FEATURES[name].title for name in missing)}" if missing else ""

    def require(self, name: str, catalog: str, purpose: str, hint: str | None = None) -> None:
        """Raise ConfigError if one of these is known to be missing.

        Args:
            name: The name of the field.
            catalog: The catalog's name, for the message.
            purpose: What can't be done without it, as in ``"table db.events can't have a tag"``.
            hint: Another way out than that of the feature.
        """
        if getattr(self, name) is False:
            feature = FEATURES[name]
            raise ConfigError(f"{purpose}: {catalog} {feature.lack}", hint=hint or feature.way_out)
