"""MariaDbSource and MySqlSource under the contract of all sources, with a real server's log, staged before."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.contracts.test_sources import (
    PIECES,
    SCHEMA,
    Case,
    test_a_split_read_twice_gives_the_same_rows,
    test_any_cut_and_any_restart_gives_every_row_once,
    test_at_the_end_the_offset_stays,
    test_batches_have_the_schema_and_are_not_all_one,
    test_the_limit_counts_the_sources_own_units,
    test_the_source_is_a_value,
    test_the_target_is_not_passed,
    test_what_lies_behind_a_committed_offset_is_read_as_before,
)
from tests.mariadb.shops import SERVERS, Shop
from tests.postgres.runs import running
from volley import MariaDbSource, Reader, Source, SourceContext
from volley.capture import reader as capture_reader
from volley.capture import segments
from volley.connectors.mariadb.reader import MariaDbReader
from volley.connectors.mariadb.splits import MariaDbSplit

__all__ = [
    "test_a_split_read_twice_gives_the_same_rows",
    "test_any_cut_and_any_restart_gives_every_row_once",
    "test_at_the_end_the_offset_stays",
    "test_batches_have_the_schema_and_are_not_all_one",
    "test_the_limit_counts_the_sources_own_units",
    "test_the_source_is_a_value",
    "test_the_target_is_not_passed",
    "test_what_lies_behind_a_committed_offset_is_read_as_before",
]


class _Staged(MariaDbReader):
    """Reads what is staged already, without the columns that tell what to do."""

    def __init__(self, reader: MariaDbReader) -> None:
        super().__init__(reader.rows, reader.parallelism, reader.limit)
        self.schema = SCHEMA

    def read(self, split: MariaDbSplit) -> Iterator[pa.RecordBatch]:
        return (batch.select(SCHEMA.names).cast(SCHEMA) for batch in super().read(split))

    def start(self) -> None:
        pass


@dataclass(frozen=True, repr=False)
class _StagedSource(Source):
    """Each of its states begins with the segments of a folder."""

    stream: MariaDbSource
    staged: Path
    bounded = True

    @property
    def identity(self) -> str:
        return self.stream.identity

    def __repr__(self) -> str:
        return repr(self.stream)

    def open(self, context: SourceContext) -> Reader:
        if not Path(context.state, "segments").exists():
            shutil.copytree(self.staged, f"{context.state}/segments")
        reader = self.stream.open(replace(context, parallelism=100))
        assert isinstance(reader, MariaDbReader)
        return _Staged(reader)


@pytest.fixture(scope="module", params=SERVERS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """A segment for each piece."""
    server = request.getfixturevalue(request.param)
    folder, shop = tmp_path_factory.mktemp("staged"), Shop(server, server.database())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "_SEGMENT_MESSAGES", 1)
        patch.setattr(capture_reader, "_SPLIT_BYTES", 1)
        shop.run("create table `rows` (id bigint primary key, name text)")
        stream = shop.source("rows", load="none")
        with running(stream, folder) as run:
            assert run.epoch() == []
        for piece in PIECES:
            values = ", ".join(
                f"({row['id']}, {'null' if row['name'] is None else repr(row['name'])})" for row in piece
            )
            shop.run(f"insert into `rows` values {values}")
        with running(stream, folder):
            yield _StagedSource(stream, folder / "state" / "segments")
    shop.run(f"drop database {shop.name}")


@pytest.fixture(scope="module")
def case(source: Source) -> Case:
    return Case(lambda folder: source, len(PIECES))


@pytest.fixture
def reader(source: Source, tmp_path: Path) -> Reader:
    reader: Reader = source.open(SourceContext(f"{tmp_path}/state"))
    return reader
