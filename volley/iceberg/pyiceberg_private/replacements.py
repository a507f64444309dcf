"""Snapshots with the same rows in other manifests or delete files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    ManifestWriter,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary

from volley.iceberg.pyiceberg_private.manifests import (
    DeleteManifestWriter,
    manifest_writer,
)
from volley.iceberg.pyiceberg_private.producer import Producer

__all__ = ["NewManifest", "replace_manifests"]


class NewManifest(NamedTuple):
    """A manifest to write.

    Args:
        content: What its files contain.
        schema: A schema with all sources of the spec.
        spec: The spec of its partitions.
        entries: Its entries, of `live_entries`.
    """

    content: ManifestContent
    schema: Schema
    spec: PartitionSpec
    entries: Sequence[ManifestEntry]


def replace_manifests(
    transaction: Transaction,
    *,
    kept: Sequence[ManifestFile],
    rewritten: Iterable[NewManifest],
    snapshot_id: int,
    summary: dict[str, str],
    branch: str,
) -> list[ManifestFile]:
    """Add a snapshot to the transaction that has the same files in other manifests; return the new manifests.

    Args:
        transaction: The transaction.
        kept: The manifests that stay.
        rewritten: The new manifests; their entries keep their snapshot ids and sequence numbers.
        snapshot_id: The snapshot's id.
        summary: Texts for the snapshot's summary; totals are carried over.
        branch: The branch.
    """
    producer = _Replaced(
        kept,
        rewritten,
        Operation.REPLACE,
        transaction=transaction,
        io=transaction._table.io,
        snapshot_properties=summary,
        branch=branch,
    )
    producer._snapshot_id = snapshot_id
    producer.commit()
    return producer.written


class _Replaced(Producer):
    """A snapshot with the same files as its parent, in other manifests."""

    def __init__(
        self,
        kept: Sequence[ManifestFile],
        rewritten: Iterable[NewManifest],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._kept = kept
        self._rewritten = rewritten
        self.written: list[ManifestFile] = []

    def _manifests(self) -> list[ManifestFile]:
        for manifest in self._rewritten:
            with self._writer(manifest) as writer:
                for entry in manifest.entries:
                    writer.existing(entry)
            self.written.append(writer.to_manifest_file())
        return [*self.written, *self._kept]

    def _writer(self, manifest: NewManifest) -> ManifestWriter:
        output = self.new_manifest_output()
        arguments = manifest.spec, manifest.schema, output, self._snapshot_id, self._compression
        if manifest.content == ManifestContent.DELETES:
            return DeleteManifestWriter(*arguments)
        return manifest_writer(self._transaction.table_metadata.format_version, *arguments)

    def _existing_manifests(self) -> list[ManifestFile]:
        return list(self._kept)

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        """Return the summary; pyiceberg carries no totals over to a snapshot that replaces another."""
        assert self._parent_snapshot_id is not None
        parent = self._transaction.table_metadata.snapshot_by_id(self._parent_snapshot_id)
        values = parent.summary.additional_properties if parent and parent.summary else {}
        totals = {name: value for name, value in values.items() if name.startswith("total-")}
        return Summary(Operation.REPLACE, **totals, **(snapshot_properties or {}))
