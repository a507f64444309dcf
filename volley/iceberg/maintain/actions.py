"""The actions of a job's maintenance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.table.metadata import TableMetadata

from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.maintain.compaction import compact
from volley.iceberg.maintain.deletes import rewrite_deletes
from volley.iceberg.maintain.expiry import expire
from volley.iceberg.maintain.manifests import rewrite_manifests
from volley.iceberg.maintain.options import CompactionOptions, DeleteOptions, ManifestOptions, Runner
from volley.iceberg.maintain.retention import Expired, Rule
from volley.iceberg.maintain.values import Compaction, DeleteRewrite, Expiry
from volley.iceberg.maintenance import Maintenance

__all__ = ["Action", "actions"]

# A table that gets one file a commit then has some 8 + log2(files) small files a partition.
_LEAST_FILES = 8
_MIB = 1 << 20
_SPARED = timedelta(hours=1)


@dataclass(frozen=True)
class Action:
    """An action of maintenance.

    Args:
        run: Does what is to be done, and describes it; returns None if there was nothing.
    """

    name: str
    run: Callable[[], str | None]


def actions(config: IcebergSinkConfig, maintenance: Maintenance, run: Runner) -> list[Action]:
    """Return the actions in their order: the files that a compaction has replaced expire after it.

    Args:
        maintenance: What is to be done.
    """
    chosen = []
    if maintenance.compact_below is not None:
        chosen.append(Action("compaction", lambda: _compact(config, maintenance, run)))
    if maintenance.deletes:
        chosen.append(Action("deletes", lambda: _merge_deletes(config, maintenance, run)))
    if maintenance.manifests:
        chosen.append(Action("manifests", lambda: _manifests(config)))
    if maintenance.expire_after is not None or maintenance.retain_most is not None:
        chosen.append(Action("expiry", lambda: _expire(config, maintenance)))
    return chosen


def _compact(config: IcebergSinkConfig, maintenance: Maintenance, run: Runner) -> str | None:
    assert isinstance(maintenance.compact_below, int)
    target = int(config.target_file_size_mb * _MIB)
    options = CompactionOptions(
        target_size=target,
        # One file a task: an epoch may wait for the core of one.
        group_size=target * 9 // 10,
        small_bytes=maintenance.compact_below,
        least_files=_LEAST_FILES,
        # Large files stay: other writers may want them so.
        large_above=1000,
        deletes_above=maintenance.deletes_above,
        max_time=maintenance.every,
        run=run,
    )
    done = compact(config.ref, options)
    return _line(done) if done.snapshots else None


def _merge_deletes(config: IcebergSinkConfig, maintenance: Maintenance, run: Runner) -> str | None:
    done = rewrite_deletes(config.ref, DeleteOptions(max_time=maintenance.every, run=run))
    return _line(done) if done.snapshot_id else None


def _manifests(config: IcebergSinkConfig) -> str | None:
    done = rewrite_manifests(config.ref, ManifestOptions())
    return str(done) if done.replaced else None


def _expire(config: IcebergSinkConfig, maintenance: Maintenance) -> str | None:
    now = datetime.now(UTC)
    rules = []
    if maintenance.expire_after is not None:
        assert isinstance(maintenance.expire_after, timedelta)
        rules.append(Rule(now, now - maintenance.expire_after, maintenance.retain_last, table=config.table_name))
    if maintenance.retain_most is not None:
        rules.append(Rule(now, now - _SPARED, maintenance.retain_most, table=config.table_name))

    def plan(metadata: TableMetadata) -> Expired:
        return _union([rule.expired(metadata) for rule in rules])

    done = expire(config.ref, plan, outside=False)
    return _line(done) if done.snapshots or done.refs else None


def _line(done: Compaction | DeleteRewrite | Expiry) -> str:
    return str(done).replace("\n", "; ")


def _union(parts: list[Expired]) -> Expired:
    snapshots = {snapshot.snapshot_id: snapshot for part in parts for snapshot in part.snapshots}
    return Expired(tuple(snapshots.values()), tuple(sorted({ref for part in parts for ref in part.refs})))
