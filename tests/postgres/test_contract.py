"""PostgresSource under the contract of all sources, with a real server's stream, staged before."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.captured import Database, database
from tests.contracts.test_sources import (
    FIRST,
    MORE,
    OTHERS,
    PIECES,
    SCHEMA,
    Case,
    check_old_copy,
    test_a_split_read_twice_gives_the_same_rows,
    test_any_cut_and_any_restart_gives_every_row_once,
    test_at_the_end_the_offset_stays,
    test_batches_have_the_schema_and_are_not_all_one,
    test_the_limit_counts_the_sources_own_units,
    test_the_source_is_a_value,
    test_the_target_is_not_passed,
    test_what_lies_behind_a_committed_offset_is_read_as_before,
)
from tests.postgres.runs import running
from tests.servers.postgres import Postgres
from tests.waiting import wait_until
from volley import PostgresSource, Reader, Source, SourceContext, SourceError, StorageError
from volley.capture import reader as capture_reader
from volley.capture import segments
from volley.connectors.postgres.reader import PostgresReader
from volley.connectors.postgres.splits import PostgresSplit

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


class _Staged(PostgresReader):
    """Reads what is staged already, without the columns that tell what to do."""

    def __init__(self, reader: PostgresReader) -> None:
        super().__init__(reader.rows, reader.parallelism, reader.limit)
        self.schema = SCHEMA

    def read(self, split: PostgresSplit) -> Iterator[pa.RecordBatch]:
        return (batch.select(SCHEMA.names).cast(SCHEMA) for batch in super().read(split))

    def start(self) -> None:
        pass


@dataclass(frozen=True, repr=False)
class _StagedSource(Source):
    """Each of its states begins with the segments of a folder."""

    stream: PostgresSource
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
        assert isinstance(reader, PostgresReader)
        return _Staged(reader)


def insert(shop: Database, rows: list[dict[str, Any]]) -> None:
    values = ", ".join(f"({row['id']}, {'null' if row['name'] is None else repr(row['name'])})" for row in rows)
    shop.run(f"insert into rows values {values}")


@pytest.fixture(scope="module")
def source(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """A segment for each piece."""
    folder = tmp_path_factory.mktemp("staged")
    with database(postgres) as shop, pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "_SEGMENT_MESSAGES", 1)
        patch.setattr(capture_reader, "_SPLIT_BYTES", 1)
        shop.run("create table rows (id bigint primary key, name text)")
        stream = shop.source("public.rows", load="none")
        with running(stream, folder) as run:
            assert run.epoch() == []
        for piece in PIECES:
            insert(shop, piece)
        with running(stream, folder):
            yield _StagedSource(stream, folder / "state" / "segments")


@pytest.fixture(scope="module")
def case(source: Source) -> Case:
    return Case(lambda folder: source, len(PIECES))


@pytest.fixture
def reader(source: Source, tmp_path: Path) -> Reader:
    return source.open(SourceContext(str(tmp_path / "state"), 5))


@contextmanager
def as_it_was(shop: Database) -> Iterator[None]:
    """Put the database's slot back afterwards, as if no acknowledgement had come."""
    copied, kept = "select pg_copy_logical_replication_slot('%s', '%s')", f"kept_{uuid4().hex}"
    ((name,),) = shop.rows("select slot_name from pg_replication_slots where database = current_database()")
    shop.alone(copied % (name, kept))
    yield
    shop.drop_slot(name)
    shop.alone(copied % (kept, name))
    shop.drop_slot(kept)


@pytest.mark.parametrize("slot", ["kept", "made anew", "not told"])
def test_an_old_copy_of_the_checkpoint_takes_no_changes_for_others(shop: Database, tmp_path: Path, slot: str) -> None:
    """The server knows what was acknowledged behind the copy; what it was not told of comes again."""
    told = "select confirmed_flush_lsn >= '%s' from pg_replication_slots where database = current_database()"
    shop.run("create table rows (id bigint primary key, name text)")
    stream = shop.source("public.rows", load="none")

    def moves(folder: Path, step: int) -> Source:
        if step == 0:
            with running(stream, folder):
                pass
        if step == 2 and slot == "made anew":
            shop.drop_slots()
            shop.alone("select pg_create_logical_replication_slot(current_database()::text, 'pgoutput')")
        insert(shop, (FIRST, MORE, OTHERS)[step])
        ((end,),) = shop.rows("select pg_current_wal_flush_lsn()::text")
        with as_it_was(shop) if slot == "not told" else nullcontext(), running(stream, folder):
            wait_until(lambda: (True,) in shop.rows(told % end), 30, "the acknowledgement")
        return _StagedSource(stream, folder / "state" / "segments")

    check_old_copy(moves, tmp_path)
    assert shop.rows("select count(*) from rows") == [(30,)]


def test_an_old_copy_from_before_the_load_loses_no_row(shop: Database, tmp_path: Path) -> None:
    """The load is in the table, and the copy does not know what its snapshot has seen."""
    with running(shop.source(), tmp_path) as run:
        shutil.copytree(tmp_path / "state", tmp_path / "copy")
        loaded = run.end()
        assert len(run.read(loaded)) == 1000
    shop.run("insert into orders values (5000, 'x', 1, null)")
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "copy", tmp_path / "state")
    message = r"fences/000001.json is missing|are gone"
    with pytest.raises((SourceError, StorageError), match=message), running(shop.source(), tmp_path) as run:  # noqa: PT012
        run.start = loaded
        run.epoch()
