"""Records which pages a reader cuts out of Parquet files."""

from __future__ import annotations

from typing import Any

import pytest

from volley.formats.parquet_index import PagedFile

__all__ = ["recorded_cuts"]


def recorded_cuts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The column of each cut from now on, and its bytes."""
    cuts: list[tuple[str, int]] = []
    original = PagedFile.cut

    def cut(self: PagedFile, column: Any, *arguments: Any) -> Any:
        file, first = original(self, column, *arguments)
        cuts.append((column.name, file.size))
        return file, first

    monkeypatch.setattr(PagedFile, "cut", cut)
    return cuts
