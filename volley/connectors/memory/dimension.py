"""Rows of this process as a table that a stream is joined with."""

from __future__ import annotations

from dataclasses import dataclass

from volley.connectors.memory.source import MemorySource
from volley.contracts.dimension import Dimension, DimensionReader

__all__ = ["MemoryDimension"]


@dataclass(frozen=True, repr=False)
class MemoryDimension(Dimension):
    """The rows of a MemorySource, for small tables that change with the program.

    Args:
        source: The source.
    """

    source: MemorySource

    @property
    def identity(self) -> str:
        return self.source.identity

    def open(self) -> DimensionReader:
        from volley.connectors.memory.dimension_reader import MemoryDimensionReader

        return MemoryDimensionReader(self.source)

    def __repr__(self) -> str:
        return repr(self.source)
