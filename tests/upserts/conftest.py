"""What the tests of overwrite and upsert share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.upserts.lake import Lake
from volley.iceberg.modes import CommitMode

MakeLake = Callable[..., Lake]


@pytest.fixture
def make_lake(tmp_path: Path) -> Iterator[MakeLake]:
    """Makes a lake for a mode and a schema."""
    made: list[Lake] = []

    def make(mode: CommitMode, schema: pa.Schema, **properties: str) -> Lake:
        made.append(Lake(tmp_path / str(len(made)), mode, schema, **properties))
        return made[-1]

    yield make
    for lake in made:
        lake.close()
