"""What a source finds out once and keeps for as long as its job's checkpoint lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from volley.errors import StorageError
from volley.storage.durable import write_durably
from volley.storage.paths import filesystem

__all__ = ["damaged", "read_or_create"]

T = TypeVar("T")


def read_or_create(url: str, make: Callable[[], bytes], parse: Callable[[bytes], T]) -> T:
    """What a file holds; if there is none, what `make` gives, which the file holds from then on.

    Args:
        url: The file's fsspec URL.
        make: Finds it out.
        parse: Turns the file's bytes into the value.

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
    """The error for a file that a source keeps below its checkpoint.

    Args:
        path: The file.
        fault: What is wrong with it.
    """
    checkpoint = path.rpartition("/volley/")[0]
    return StorageError(
        f"checkpoint file {path} {fault}",
        hint=f"don't delete it: volley.repair({checkpoint!r}) does where that is safe, else says so; "
        "or restore it from a backup, or start over with fresh=True",
    )
