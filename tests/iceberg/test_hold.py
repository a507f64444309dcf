"""A stream holds the snapshots that it has not read yet: an expiry keeps them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.table.update import SetSnapshotRefUpdate

from tests.iceberg.test_compaction import Lake, lake
from volley import SourceContext, SourceError
from volley.contracts.source import Offset, Reader
from volley.iceberg import IcebergSource, IcebergSourceConfig, Incremental, SnapshotManager
from volley.iceberg.commit import hold
from volley.iceberg.commit.hold import HOLD
from volley.iceberg.pyiceberg_private.access import commit_once, stage

assert lake


class Stream:
    """A job's source, as the engine drives it."""

    def __init__(self, lake: Lake, state: Path, max_age: timedelta | None = timedelta(days=7)) -> None:
        config = IcebergSourceConfig(lake.files.ref).with_mode(Incremental(0.001)).with_changes("follow")
        self.reader: Reader = IcebergSource(config.with_hold(max_age)).open(SourceContext(str(state)))
        self.offset: Offset = self.reader.initial_offset()

    def read(self) -> list[int]:
        """One epoch, committed."""
        end = self.reader.latest_offset(self.offset, None, None)
        read = self.reader.split_reader()
        batches = [batch for split in self.reader.splits(self.offset, end) for batch in read.read(split)]
        self.offset = end
        self.reader.committed(end)
        return sorted(value for batch in batches for value in batch["id"].to_pylist())


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a tag move at every epoch."""
    monkeypatch.setattr(hold, "_SECONDS_BETWEEN", 0.0)


def expire(lake: Lake) -> int:
    manager = SnapshotManager(lake.files.ref)
    return len(manager.expire_snapshots(older_than=datetime.now(UTC), retain_last=1).snapshots)


def held(lake: Lake) -> list[str]:
    return [name for name in lake.files.ref.load().metadata.refs if name.startswith(HOLD)]


@pytest.mark.usefixtures("soon")
def test_an_expiry_keeps_what_a_stream_has_not_read(lake: Lake, tmp_path: Path) -> None:
    stream = Stream(lake, tmp_path / "state")
    lake.append(0)
    assert stream.read() == list(range(10))
    for first in (10, 20, 30):
        lake.append(first)
    assert expire(lake) == 0
    assert stream.read() == list(range(10, 40))
    assert expire(lake) == 3
    lake.append(40)
    assert stream.read() == list(range(40, 50))
    assert len(held(lake)) == 1


def test_without_a_hold_the_stream_stops(lake: Lake, tmp_path: Path) -> None:
    stream = Stream(lake, tmp_path / "state", None)
    lake.append(0)
    stream.read()
    for first in (10, 20, 30):
        lake.append(first)
    assert expire(lake) == 3
    assert held(lake) == []
    with pytest.raises(SourceError, match="expired"):
        stream.read()


def test_the_tag_moves_once_a_minute(lake: Lake, tmp_path: Path) -> None:
    stream = Stream(lake, tmp_path / "state")
    lake.append(0)
    stream.read()
    (name,) = held(lake)
    before = lake.files.ref.load().metadata.refs[name].snapshot_id
    lake.append(10)
    stream.read()
    refs = lake.files.ref.load().metadata.refs
    assert refs[name].snapshot_id == before != refs["main"].snapshot_id


@pytest.mark.usefixtures("soon")
def test_an_old_hold_is_dropped(lake: Lake, tmp_path: Path) -> None:
    stream = Stream(lake, tmp_path / "state", timedelta(milliseconds=1))
    lake.append(0)
    stream.read()
    lake.append(10)
    lake.append(20)
    assert expire(lake) == 2
    assert held(lake) == []


@pytest.mark.usefixtures("soon")
def test_each_job_has_its_own(lake: Lake, tmp_path: Path) -> None:
    one, other = Stream(lake, tmp_path / "one"), Stream(lake, tmp_path / "other")
    lake.append(0)
    one.read()
    other.read()
    lake.append(10)
    one.read()
    assert len(held(lake)) == 2
    assert expire(lake) == 0
    # The same job goes on with its tag after a restart.
    again = Stream(lake, tmp_path / "one")
    again.offset = one.offset
    lake.append(20)
    assert again.read() == list(range(20, 30))
    assert len(held(lake)) == 2


@pytest.mark.usefixtures("soon")
def test_a_snapshot_that_is_gone_is_not_held(lake: Lake, tmp_path: Path) -> None:
    stream = Stream(lake, tmp_path / "state")
    stream.reader.committed(stream.offset)
    lake.append(0)
    stream.read()
    gone = replace(stream.reader, hold=hold.Hold(lake.files.ref, HOLD + "other", timedelta(days=1)))  # type: ignore[type-var]
    gone.committed({**stream.offset, "snapshot": 5})
    assert len(held(lake)) == 1


def age_of(lake: Lake) -> timedelta | None:
    """How long other engines keep the snapshots of main, by its own setting; they have no other one of it."""
    age = lake.files.ref.load().metadata.refs["main"].max_snapshot_age_ms
    return None if age is None else timedelta(milliseconds=age)


@pytest.mark.usefixtures("soon")
def test_other_engines_keep_the_branchs_snapshots_by_its_own_setting(lake: Lake, tmp_path: Path) -> None:
    week, month = timedelta(days=7), timedelta(days=30)
    one, other = Stream(lake, tmp_path / "one", week), Stream(lake, tmp_path / "other", month)
    lake.append(0)
    one.read()
    assert age_of(lake) == week
    other.read()
    assert age_of(lake) == month
    lake.append(10)
    one.read()
    # Neither a commit nor the shorter hold takes it back.
    assert age_of(lake) == month
    # The snapshots that both have read expire here none the later.
    other.read()
    assert expire(lake) == 1
    refs = lake.files.ref.load().metadata.refs
    shortest, longest = sorted(held(lake), key=lambda name: refs[name].max_ref_age_ms or 0)
    SnapshotManager(lake.files.ref).drop_tag(longest)
    assert age_of(lake) == week
    SnapshotManager(lake.files.ref).drop_tag(shortest)
    assert age_of(lake) is None
    assert sorted(lake.ids()) == list(range(20))


@pytest.mark.usefixtures("soon")
def test_an_expiry_that_drops_an_old_hold_drops_the_branchs_setting(lake: Lake, tmp_path: Path) -> None:
    stream = Stream(lake, tmp_path / "state", timedelta(milliseconds=1))
    lake.append(0)
    stream.read()
    assert age_of(lake) == timedelta(milliseconds=1)
    lake.append(10)
    expire(lake)
    assert held(lake) == []
    assert age_of(lake) is None


@pytest.mark.usefixtures("soon")
def test_a_setting_of_the_users_own_stays(lake: Lake, tmp_path: Path) -> None:
    lake.append(0)
    table = lake.files.ref.load()
    transaction = table.transaction()
    head = {"ref-name": "main", "type": "branch", "snapshot-id": table.metadata.current_snapshot_id}
    own = {"max-snapshot-age-ms": 5_000, "min-snapshots-to-keep": 3}
    stage(transaction, SetSnapshotRefUpdate.model_validate({**head, **own}))
    commit_once(table, transaction)
    Stream(lake, tmp_path / "state").read()
    main = lake.files.ref.load().metadata.refs["main"]
    assert (main.max_snapshot_age_ms, main.min_snapshots_to_keep) == (5_000, 3)
    assert len(held(lake)) == 1
