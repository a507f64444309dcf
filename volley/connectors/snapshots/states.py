"""The present state of a source that has an end, as an extract: its version is given, or the time of the look at it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from datetime import date
from typing import Any

import pyarrow as pa

from volley.columns.snapshots import PRESENT, given_version
from volley.contracts.extracts import Extract, Extracts
from volley.contracts.source import Reader, Split, SplitReader

__all__ = ["PresentStates"]


class PresentStates(Extracts):
    """Reads a source from its beginning each time.

    Args:
        given: The version of its rows; None = the time of the look.
    """

    def __init__(self, reader: Reader, given: int | date | None = None) -> None:
        self._reader = reader
        self._given = None if given is None else given_version(given)

    @property
    def keeps_versions(self) -> bool:
        return self._given is not None

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    @property
    def version(self) -> str:
        return str(PRESENT.name)

    @property
    def version_type(self) -> pa.DataType:
        return PRESENT.type if self._given is None else self._given[1]

    def listed(self, since: int | None) -> Sequence[Extract]:
        start = self._reader.initial_offset()
        end = self._reader.latest_offset(start, None, None)
        proof = hashlib.sha256(json.dumps(end, sort_keys=True).encode()).hexdigest()
        version = time.time_ns() // 1000 if self._given is None else self._given[0]
        return [Extract(version, proof, "the source", place=end)]

    def splits(self, version: int, proof: str, place: dict[str, Any]) -> list[Split]:
        start = self._reader.initial_offset()
        return [] if place == start else self._reader.splits(start, place)

    def size(self, split: Split) -> int | None:
        return self._reader.size(split)

    def split_reader(self) -> SplitReader:
        return self._reader.split_reader()
