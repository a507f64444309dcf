"""IcebergSink: rows of a stream into an Iceberg table, one snapshot per epoch, exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from volley.checks import keep, of_type
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.modes import Upsert
from volley.registry import SINKS, load
from volley.sink import Committer, Sink, SinkContext

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.iceberg.commit.committer import IcebergCommitter

__all__ = ["IcebergSink"]


@dataclass(frozen=True)
class IcebergSink(Sink):
    """Writes a stream to an Iceberg table: Parquet files by the executors, one snapshot per epoch by the driver.

    Args:
        config: Which table, in which catalog and storage, and how.

    Raises:
        ConfigError: If that is something else.

    Example:
        >>> from volley.iceberg import IcebergSink, IcebergSinkConfig, IcebergStorage
        >>> storage = IcebergStorage.Local("/tmp/warehouse")
        >>> sink = IcebergSink(IcebergSinkConfig(namespace=["db"], table="events", storage=storage))
        >>> sink.batch_size
        10000
    """

    config: IcebergSinkConfig

    def __post_init__(self) -> None:
        keep(self, config=of_type(IcebergSinkConfig, 'IcebergSinkConfig(namespace="db", table="events", storage=…)'))

    @property
    def label(self) -> str:
        """The table's name."""
        return self.config.table_name

    @property
    def target(self) -> str:
        """The table's name behind its catalog's address."""
        return f"{self.config.ref.address}/{self.config.table_name}"

    @property
    def flush_interval(self) -> timedelta | None:
        return self.config.flush_interval

    @property
    def batch_size(self) -> int:
        return self.config.batch_size

    @property
    def takes_dictionaries(self) -> bool:
        """Data files have them too; who upserts compares keys."""
        return not isinstance(self.config.commit_mode, Upsert)

    @property
    def dead_letter(self) -> Sink | None:
        """A table beside the sink's, or JSON files; see `IcebergSinkConfig.with_dead_letter`."""
        target = self.config.dead_letter
        if target is None:
            return None
        table = self.config.dead_letter_table
        return IcebergSink(table) if table else self._files(target)

    def dead_letter_at(self, name: str) -> Sink:
        """The table of this name in the same catalog, or JSON files in this folder.

        Raises:
            ConfigError: If it is no name, or the sink's own table.
        """
        letters = IcebergSink(self.config.with_dead_letter(name)).dead_letter
        assert letters is not None
        return letters

    def _files(self, target: str) -> Sink:
        within = target.startswith(f"{self.config.storage.root}/")
        options = self.config.storage.fsspec_options(self.config.properties) if within else {}
        made: Sink = load(SINKS, "files")(target, format="json", storage_options=options)
        return made

    def check(self, schema: pa.Schema | None) -> None:
        """Reach the catalog, and compare the table with the stream's schema if both are there.

        Raises:
            VolleyError: As `open`.
        """
        from volley.iceberg.commit.tables import check_table

        check_table(self.config, schema)

    def open(self, context: SinkContext) -> Committer:
        """Reach the catalog; make the table, or check that the stream's schema fits it.

        Raises:
            CatalogError: If the catalog can't be reached or refuses, or the table is missing and may not be made.
            SchemaMismatchError: If the stream does not fit the table; lists every difference.
            TableNotFoundError: If the job has written to the table before, and it is gone.
            StorageError: If the table's metadata can't be written.
        """
        from volley.iceberg.commit.committer import IcebergCommitter
        from volley.iceberg.commit.tables import open_table

        catalog, table = open_table(self.config, context.schema, create=not context.resumed)
        committer: IcebergCommitter = IcebergCommitter(catalog, table, self.config, context)
        return committer
