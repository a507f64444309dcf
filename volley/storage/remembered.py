"""Remembers values that a source computes once, for the life of its job's checkpoint."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from volley.errors import StorageError, VolleyError
from volley.storage.durable import write_durably
from volley.storage.envelope import StateFormat
from volley.storage.paths import filesystem
from volley.storage.state_formats import FAILURE

__all__ = ["MALFORMED", "FailureRecord", "Record", "damaged", "malformed", "read_or_create", "replace"]

T = TypeVar("T")

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0

MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError)
"""What code raises that takes a value apart which lacks a part, or has another one in its place."""


@dataclass(frozen=True)
class Record(Generic[T]):
    """A value in a file below a job's checkpoint, which is written anew as a whole.

    Args:
        parse: Returns the record of a value of JSON; may raise any of `MALFORMED`.
    """

    url: str
    format: StateFormat
    parse: Callable[[Any], T]

    def read(self) -> T | None:
        """Return the record; None if there is none yet.

        Raises:
            StorageError: If it is damaged, or a newer Volley wrote it.
            OSError: If it can't be read.
        """
        files, path = filesystem(self.url, {})
        try:
            return self.parse(self.format.load(files.cat_file(path), path))
        except FileNotFoundError:
            return None
        except MALFORMED as error:
            raise malformed(path, error) from error

    def write(self, value: object) -> None:
        """Write the record durably, in place of the one before.

        Raises:
            OSError: If it can't be written.
        """
        write_durably(*filesystem(self.url, {}), self.format.dump(value))


@dataclass(frozen=True)
class FailureRecord:
    """Why a source's receiver has ended, in a file that tells it other processes; a job's start deletes it."""

    url: str

    def read(self) -> VolleyError | None:
        """Return the error; None if there is none.

        Raises:
            StorageError: If it is damaged, or a newer Volley wrote it.
        """
        files, path = filesystem(self.url, {})
        try:
            return VolleyError.from_json(FAILURE.unseal(files.cat_file(path), path).decode())
        except FileNotFoundError:
            return None
        except MALFORMED as error:
            raise StorageError(f"{path} is damaged: {error}", hint="start the job again: it is written anew") from error

    def write(self, error: VolleyError) -> None:
        """Write the error durably."""
        write_durably(*filesystem(self.url, {}), FAILURE.seal(error.to_json().encode()))

    def keep(self, error: VolleyError, stopping: threading.Event) -> None:
        """Write the error; until it is stopped again and again, if that fails, as on a full disk."""
        while not stopping.is_set():
            try:
                return self.write(error)
            except Exception as reason:
                # Some storages out of reach tell so by errors of their own.
                _log.warning("an error can't be recorded, trying again: %s", reason)
            stopping.wait(_RETRY_SECONDS)

    def clear(self) -> None:
        """Delete the file, if it is there."""
        files, path = filesystem(self.url, {})
        with suppress(FileNotFoundError):
            files.rm_file(path)


def read_or_create(url: str, format: StateFormat, make: Callable[[], bytes], parse: Callable[[bytes], T]) -> T:
    """Read a value from a file; if the file does not exist, create it from `make()` first.

    Raises:
        StorageError: If the file is damaged, or a newer Volley wrote it.
    """
    files, path = filesystem(url, {})
    if not files.exists(path):
        write_durably(files, path, format.seal(make()))
    try:
        return parse(format.unseal(files.cat_file(path), path))
    except MALFORMED as error:
        raise malformed(path, error) from error


def replace(url: str, format: StateFormat, value: bytes) -> None:
    """Replace the value that `read_or_create` reads, durably."""
    write_durably(*filesystem(url, {}), format.seal(value))


def damaged(path: str, fault: str) -> StorageError:
    """Return the error for a damaged or missing file below a job's checkpoint.

    Args:
        fault: The fault, as a clause, for example ``"is damaged"``.
    """
    checkpoint = path.rpartition("/volley/")[0]
    return StorageError(
        f"checkpoint file {path} {fault}",
        hint=f"don't delete it: volley.repair({checkpoint!r}) does where that is safe, else says so; "
        "or restore it from a backup, or start over with fresh=True",
    )


def malformed(path: str, error: Exception) -> StorageError:
    """Return the error for a file below a job's checkpoint that can't be parsed.

    Args:
        error: What was raised, one of `MALFORMED`.
    """
    return damaged(path, f"is damaged: {'it lacks ' if isinstance(error, KeyError) else ''}{error}")
