"""Looks for a quote in a CSV file that is never closed, without looking at each row."""

from __future__ import annotations

import codecs
import re
from typing import Any

from volley.formats.options import CsvOptions

__all__ = ["Quotes"]

# Most files have a quote in the last bytes of a block, which are faster to look at than all.
_TAIL = 4096


class Quotes:
    """A byte stream that looks for a quote that is never closed.

    Behind the quote that opens such a value, quotes come in pairs only. It is thus the last one without a partner, and
    stands at the beginning of a value.
    """

    def __init__(self, stream: Any, options: CsvOptions) -> None:
        self._stream = stream
        self._quote = (options.quote or "").encode()
        self._escape = (options.escape or "").encode()
        self._escaped = re.compile(re.escape(self._escape) + b".", re.S)
        self._beginnings = b"\r\n" + options.delimiter.encode()
        self._rest = b""
        # The last byte that is no quote, the number of quotes behind it, and the byte before the last quote without a
        # partner.
        self._last = b"\n"
        self._behind = 0
        self._before = b""
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes of the stream."""
        data: bytes = self._stream.read(size)
        if self._quote:
            self._look_at(self._without_escaped(data.removeprefix(codecs.BOM_UTF8)))
        return data

    @property
    def may_be_open(self) -> bool:
        """True if the last quote without a partner stands where a value can begin."""
        before = self._last if self._behind % 2 else self._before
        return before != b"" and before in self._beginnings

    def _look_at(self, data: bytes) -> None:
        text = data.lstrip(self._quote)
        self._behind += len(data) - len(text)
        if not text:
            return
        if self._behind % 2:
            self._before = self._last
        data, text = text, text.rstrip(self._quote)
        self._last, self._behind = text[-1:], len(data) - len(text)
        if self._quote in text:
            self._before = (
                self._before_last(text[-_TAIL:].lstrip(self._quote)) or self._before_last(text) or self._before
            )

    def _before_last(self, text: bytes) -> bytes:
        """Return the byte before the last quote without a partner; empty if there is none."""
        pair = self._quote * 2
        # To count is faster, and enough for a block whose only quotes are those of empty values.
        if text.count(self._quote) == 2 * text.count(pair):
            return b""
        single = text.replace(pair, b"")
        at = single.rfind(self._quote)
        return single[at - 1 : at] if at > 0 else b""

    def _without_escaped(self, data: bytes) -> bytes:
        if not self._escape or self._escape not in self._rest + data:
            return data
        data = self._escaped.sub(b"", self._rest + data)
        # An escape at the end of a piece is that of the next piece's first character.
        self._rest = self._escape if data.endswith(self._escape) else b""
        return data

    def readable(self) -> bool:
        """Return True: Arrow asks."""
        return True
