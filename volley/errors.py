"""Every exception Volley raises, in one tree.

::

    VolleyError                     .hint: what to do about it
    ├── ConfigError (ValueError)    ├── ExpressionError (TypeError)    ├── MissingDependencyError (ImportError)
    ├── PlanError                   the pipeline cannot run as it is built
    ├── SourceError                 a source can't be read
    │   ├── SourceNotFoundError     a folder, file or topic is not there
    │   ├── SnapshotNotFoundError · SnapshotExpiredError · SnapshotRolledBackError · TableReplacedError
    │   └── SchemaChangedError      rows have columns that the job was not planned with: it plans anew
    ├── StorageError ─ StorageAccessError
    ├── CatalogError ─ CatalogUnreachableError · CatalogAuthError · TableNotFoundError
    ├── SchemaMismatchError
    ├── JobError                    the job failed for any other reason
    │   ├── ExpectationError        too many rows of an epoch do not meet an expectation
    │   └── SessionLostError        the program's own Spark session is gone: only the program can make another one
    └── CommitError ─ CommitConflictError (did not land) · CommitStateUnknownError (may have landed: touch nothing)
                      └── LayoutChangedError (the epoch's files no longer fit the table: the job writes them again)
"""

from __future__ import annotations

import difflib
import json
import logging
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from types import FunctionType, TracebackType
from typing import Any, ParamSpec, Self, TypeVar

__all__ = [
    "CatalogAuthError",
    "CatalogError",
    "CatalogUnreachableError",
    "CommitConflictError",
    "CommitError",
    "CommitStateUnknownError",
    "ConfigError",
    "ExpectationError",
    "ExpressionError",
    "JobError",
    "LayoutChangedError",
    "MissingDependencyError",
    "PlanError",
    "SchemaChangedError",
    "SchemaMismatchError",
    "SessionLostError",
    "SnapshotExpiredError",
    "SnapshotNotFoundError",
    "SnapshotRolledBackError",
    "SourceError",
    "SourceNotFoundError",
    "StorageAccessError",
    "StorageError",
    "TableNotFoundError",
    "TableReplacedError",
    "VolleyError",
]

_HINT = "\n  hint: "

_ARITHMETIC = ("add", "sub", "mul", "truediv", "mod", "pow", "and", "or")
_OPERATORS = {
    *("__init__", "__getattr__", "__getitem__", "__contains__", "__bool__", "__call__"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
    *(f"__{side}{name}__" for name in _ARITHMETIC for side in ("", "r")),
}

_log = logging.getLogger(__name__)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Class = TypeVar("_Class")


class VolleyError(Exception):
    """The root of every error Volley raises.

    Args:
        message: What went wrong, with the values that caused it.
        hint: What the user can do about it.

    Attributes:
        place: The file and line of the program that has the step which the error is about; None = not known.

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
        self.place: str | None = None
        self._cause: BaseException | None = None

    @property
    def cause(self) -> BaseException | None:
        """The error that this one comes from, with its traceback, which Python does not print."""
        return self._cause or self.__cause__

    def __str__(self) -> str:
        place = "" if self.place is None else f"{self.place}: "
        return place + self.message + ("" if self.hint is None else _HINT + self.hint)

    def __reduce__(self) -> tuple[Any, ...]:
        # A cause may not pickle.
        return type(self), self.args, {name: value for name, value in vars(self).items() if name != "_cause"}

    def within(self, place: str) -> Self:
        """Return the same error with a place in front of its message; raise it from this one.

        Args:
            place: Where the error happened, such as a file and a line.

        Example:
            >>> print(SourceError("not a number", hint="mend it").within("in.csv, line 3"))
            in.csv, line 3: not a number
              hint: mend it
        """
        error = type(self)(f"{place}: {self.message}", hint=self.hint)
        error.place = self.place
        return error

    def to_json(self) -> str:
        """Return the error as one line of JSON: Spark passes only text from an executor to the driver."""
        classes = [base.__name__ for base in type(self).__mro__]
        return json.dumps({"classes": classes, "message": self.message, "hint": self.hint})

    def _shorten(self, handled: BaseException | None) -> None:
        """Let Python print neither the lines of Volley that this error comes from, nor its causes, but keep these.

        Args:
            handled: What the program was handling when it called Volley: Python goes on printing that.
        """
        if self.__traceback__ is not None and self._cause is None:
            _log.debug("the whole traceback of an error", exc_info=self)
        implied = None if self.__suppress_context__ or self.__context__ is handled else self.__context__
        self._cause = self.cause or implied
        self.__cause__, self.__context__, self.__traceback__ = None, handled, None
        self.__suppress_context__ = False

    @staticmethod
    def from_json(text: str) -> VolleyError:
        """Return the error that `to_json` wrote; for a user's subclass, as its nearest class of Volley.

        Example:
            >>> VolleyError.from_json(SourceError("no such file", hint="check the path").to_json())
            SourceError('no such file', 'check the path')
        """
        values = json.loads(text)
        classes = [globals()[name] for name in values["classes"] if name in __all__]
        error_class: type[VolleyError] = classes[0]
        return error_class(values["message"], values["hint"])


class ConfigError(VolleyError, ValueError):
    """A setting is wrong or not supported."""


class ExpressionError(VolleyError, TypeError):
    """An expression names an unknown column or combines types that do not fit."""


class MissingDependencyError(VolleyError, ImportError):
    """An optional package, or Java, is not installed."""


class PlanError(VolleyError):
    """A pipeline cannot run as it is built, or does not match the checkpoint that it starts from."""


class SourceError(VolleyError):
    """A source can't be read: a file, say, is missing, truncated or malformed."""


class SourceNotFoundError(SourceError):
    """What a source names is not there: a folder, a file or a topic."""


class SnapshotNotFoundError(SourceError):
    """A table has no such snapshot."""


class SnapshotExpiredError(SourceError):
    """Snapshots that a reader needs have expired: their changes can't be told any more."""


class SnapshotRolledBackError(SourceError):
    """A snapshot is not in the history of the one that is read: the branch was rolled back, or it is another branch."""


class TableReplacedError(SourceError):
    """The table was dropped and made anew since it was last read."""


class SchemaChangedError(SourceError):
    """Rows of a source have columns or types that the job was not planned with.

    A reader raises it when its source has got another schema: the job opens its sources and sinks anew, which then
    have the new schema, and reads the epoch again. It fails only if that does not help.
    """


class StorageError(VolleyError):
    """A file can't be written, read or listed."""


class StorageAccessError(StorageError):
    """The storage rejected the credentials, or they lack a permission."""


class CatalogError(VolleyError):
    """The catalog returned an error."""


class CatalogUnreachableError(CatalogError):
    """The catalog did not respond, or is temporarily unavailable: retry."""


class CatalogAuthError(CatalogError):
    """The catalog rejected the credentials, or they lack a privilege."""


class TableNotFoundError(CatalogError):
    """The table does not exist, and the settings do not allow to create it."""


class SchemaMismatchError(VolleyError):
    """The stream's schema does not fit the table's."""


class JobError(VolleyError):
    """The job failed for any other reason."""


class ExpectationError(JobError):
    """More rows of an epoch fail an expectation than may: the epoch was not committed."""


class SessionLostError(JobError):
    """The Spark session that the program has made was stopped, or its JVM has ended: no job can run on it again."""


class CommitError(VolleyError):
    """An epoch could not be committed."""


class CommitConflictError(CommitError):
    """The commit did not land: other writers changed the table first, in every attempt."""


class LayoutChangedError(CommitConflictError):
    """The target's layout no longer fits the epoch's files; a committer raises it, and the job writes them again."""


class CommitStateUnknownError(CommitError):
    """The commit may or may not have landed: no file is deleted; the next start checks whether it did."""


def brief(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Return a function whose VolleyErrors Python prints with the program's own lines, the message and the hint.

    The lines of Volley, and those of Spark and other causes, are ten times as many. The logger ``volley.errors`` has
    them at DEBUG, and `VolleyError.cause` the cause.

    Args:
        function: What a program calls.
    """

    @wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with _Shortening():
            return function(*args, **kwargs)

    return call


def brief_methods(builder: type[_Class]) -> type[_Class]:
    """Return a class whose public methods and properties, constructor and operators are `brief`."""
    for name, member in list(vars(builder).items()):
        if name.startswith("_") and name not in _OPERATORS:
            continue
        if isinstance(member, FunctionType):
            setattr(builder, name, brief(member))
        elif isinstance(member, staticmethod | classmethod):
            setattr(builder, name, type(member)(brief(member.__func__)))
        elif isinstance(member, property) and member.fget:
            setattr(builder, name, property(brief(member.fget)))
    return builder


class _Shortening:
    """Shortens the VolleyErrors of a block; Python adds the lines of the callers when it goes on."""

    def __enter__(self) -> None:
        self._handled = sys.exception()

    def __exit__(self, error_type: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, VolleyError):
            error._shorten(self._handled)


def message_of(error: BaseException) -> str:
    """Return what an error says, without its hint."""
    return error.message if isinstance(error, VolleyError) else str(error)


def near(name: str, known: Iterable[str]) -> str:
    """Return a hint that lists the known names, the ones closest to `name` first.

    Args:
        name: The unknown name.
        known: The names that would be right.

    Example:
        >>> near("statsu", ["status", "id"])
        "did you mean 'status'? known: 'id', 'status'"
    """
    # Some columns are Volley's own.
    names = sorted(each for each in known if not each.startswith("_volley_"))
    listed = ", ".join(map(repr, names)) or "none"
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(map(repr, close))}? known: {listed}" if close else f"known: {listed}"
