"""What a source finds out once and keeps for as long as its job's checkpoint lives."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from volley.connectors._paths import filesystem

__all__ = ["kept"]


def kept(url: str, make: Callable[[], bytes]) -> bytes:
    """What is in a file, or if there is none what `make` gives, which then is.

    Args:
        url: The file's fsspec URL.
        make: Finds it out.
    """
    files, path = filesystem(url, {})
    if not files.exists(path):
        made = make()
        files.makedirs(posixpath.dirname(path), exist_ok=True)
        files.pipe_file(f"{path}.tmp", made)
        files.mv(f"{path}.tmp", path)
    found: bytes = files.cat_file(path)
    return found
