"""Remembers values that a source computes once, for the life of its job's checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from volley.errors import StorageError
from volley.storage.durable import write_durably
from volley.storage.paths import filesystem

__all__ = ["damaged", "read_or_create"]

T = TypeVar("T")


def read_or_create(url: str, make: Callable[[], bytes], parse: Callable[[bytes], T]) -> T:
    """Read a value from a file; if the file does not exist, create it from `make()` first.

    Args:
        url: The file's fsspec URL.
        make: Computes the file's bytes.
        parse: Parses the file's bytes.

    Raises:
        StorageError: If the file is damaged.
    """
    files, path = filesystem(url, {})
    if not files.exists(path):
        write_durably(files, path, make())
    try:
        return parse(files.cat_file(path))
    except ValueError as error:
        raise damaged(path, "is damaged") from error


def damaged(path: str, fault: str) -> StorageError:
    """Return the error for a damaged or missing file below a job's checkpoint.

    Args:
        path: The file's path.
        fault: The fault, as a clause, for example ``"is damaged"``.
    """
    checkpoint = path.rpartition("/volley/")[0]
    return StorageError(
        f"checkpoint file {path} {fault}",
        hint=f"don't delete it: volley.repair({checkpoint!r}) does where that is safe, else says so; "
        "or restore it from a backup, or start over with fresh=True",
    )
