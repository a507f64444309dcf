"""The kept headers of a request, as they stand in the log."""

from __future__ import annotations

import json
from collections.abc import Sequence

__all__ = ["packed", "unpacked"]


def packed(values: Sequence[str | None]) -> bytes:
    """Return headers as they stand in the log; bytes that are not UTF-8 become U+FFFD.

    Args:
        values: The headers as aiohttp gives them, such bytes as surrogates; None = the request has no such header.

    Example:
        >>> unpacked(packed(["push", None, "\\udcff"]))
        ['push', None, '\ufffd']
    """
    return json.dumps([_text(value) for value in values], ensure_ascii=False).encode()


def unpacked(kept: bytes) -> list[str | None]:
    """Return headers from the log, also from one whose writer left surrogates in."""
    return [_text(value) for value in json.loads(kept)]


def _text(value: str | None) -> str | None:
    return None if value is None else value.encode(errors="surrogateescape").decode(errors="replace")
