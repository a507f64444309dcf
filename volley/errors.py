"""Every exception Volley raises, in one tree.

::

    VolleyError                     .hint says the way out
    ├── ConfigError (ValueError)    ├── ExpressionError (TypeError)    ├── MissingDependencyError (ImportError)
    ├── PlanError                   a pipeline that cannot run as it is drawn
    ├── SourceError                 ├── StorageError ─ StorageAccessError
    ├── CatalogError ─ CatalogUnreachableError · CatalogAuthError · TableNotFoundError
    ├── SchemaMismatchError
    ├── JobError                    the job failed for a reason that is none of the others
    └── CommitError ─ CommitConflictError (did not land) · CommitStateUnknownError (may have landed: touch nothing)
                      └── LayoutChangedError (the epoch's files no longer fit: it is written anew)
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Self

__all__ = [
    "CatalogAuthError",
    "CatalogError",
    "CatalogUnreachableError",
    "CommitConflictError",
    "CommitError",
    "CommitStateUnknownError",
    "ConfigError",
    "ExpressionError",
    "JobError",
    "LayoutChangedError",
    "MissingDependencyError",
    "PlanError",
    "SchemaMismatchError",
    "SourceError",
    "StorageAccessError",
    "StorageError",
    "TableNotFoundError",
    "VolleyError",
]

_HINT = "\n  hint: "


class VolleyError(Exception):
    """The root of every error Volley raises.

    Args:
        message: What went wrong, with the values that caused it.
        hint: What the reader can do about it.

    Example:
        >>> error = VolleyError("table db.events not found", hint="create it, or set create_table=True")
        >>> print(error)
        table db.events not found
          hint: create it, or set create_table=True
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else self.message + _HINT + self.hint

    def within(self, place: str) -> Self:
        """The same error with the place where it happened in front of its message; raise it from this one.

        Example:
            >>> print(SourceError("not a number", hint="mend it").within("in.csv, line 3"))
            in.csv, line 3: not a number
              hint: mend it
        """
        return type(self)(f"{place}: {self.message}", hint=self.hint)

    def to_json(self) -> str:
        """The error as one line of JSON, to cross from an executor, which sends only text."""
        kinds = [kind.__name__ for kind in type(self).__mro__]
        return json.dumps({"kinds": kinds, "message": self.message, "hint": self.hint})

    @staticmethod
    def from_json(text: str) -> VolleyError:
        """The error that `to_json` wrote; of a subclass that is not Volley's own, its nearest base.

        Example:
            >>> VolleyError.from_json(SourceError("no such file", hint="check the path").to_json())
            SourceError('no such file', 'check the path')
        """
        values = json.loads(text)
        kind: type[VolleyError] = next(globals()[name] for name in values["kinds"] if name in __all__)
        return kind(values["message"], values["hint"])


class ConfigError(VolleyError, ValueError):
    """A setting is wrong, or not supported."""


class ExpressionError(VolleyError, TypeError):
    """An expression names an unknown column or combines types that do not fit."""


class MissingDependencyError(VolleyError, ImportError):
    """An optional package, or Java, is not installed."""


class PlanError(VolleyError):
    """A pipeline cannot run as it is drawn, or does not fit the checkpoint it is started on."""


class SourceError(VolleyError):
    """A source can't be read: a file is missing, cut short or malformed."""


class StorageError(VolleyError):
    """A file can't be written, read or listed."""


class StorageAccessError(StorageError):
    """The storage refused the credentials, or they lack a permission."""


class CatalogError(VolleyError):
    """The catalog answered with an error."""


class CatalogUnreachableError(CatalogError):
    """The catalog did not answer, or answered that it can't now: it is worth another try."""


class CatalogAuthError(CatalogError):
    """The catalog refused the credentials, or they lack a privilege."""


class TableNotFoundError(CatalogError):
    """The table does not exist, and may not be created."""


class SchemaMismatchError(VolleyError):
    """The stream's schema does not fit the table's."""


class JobError(VolleyError):
    """The job failed for a reason that is none of the others."""


class CommitError(VolleyError):
    """An epoch could not be committed."""


class CommitConflictError(CommitError):
    """The commit did not land: somebody else changed the table first, too often."""


class LayoutChangedError(CommitConflictError):
    """The target has another layout than the epoch's files: a committer's word for a job to write it anew."""


class CommitStateUnknownError(CommitError):
    """The commit may or may not have landed: nothing is deleted, the next start finds out."""


def near(name: str, known: Iterable[str]) -> str:
    """A hint that lists the names in `known` closest to `name`, or all of them if none is close.

    Example:
        >>> near("statsu", ["status", "id"])
        "did you mean 'status'? known: 'id', 'status'"
    """
    names = sorted(known)
    listed = ", ".join(map(repr, names)) or "none"
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(map(repr, close))}? known: {listed}" if close else f"known: {listed}"
