"""Looks at the table of a sink: catalog, namespace, table, schema, and storage, where a file is written and deleted."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table

from volley.contracts.reports import Probe
from volley.errors import CommitConflictError, StorageError, TableNotFoundError
from volley.iceberg.catalogs.answers import retry_reads
from volley.iceberg.catalogs.values import RestCatalog
from volley.iceberg.commit.creation import capabilities_of, has_namespace, unbounded
from volley.iceberg.commit.tables import check_table
from volley.iceberg.commit.together import takes_tables
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.pyiceberg_private.snapshots import add_empty_snapshot
from volley.iceberg.read.entries import rows_in
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.values import LocalStorage
from volley.iceberg.table import TableRef
from volley.storage.paths import write_and_delete

__all__ = ["how_committed", "table_probes"]

_CONTENT = b"volley check writes this file and deletes it"


def table_probes(config: IcebergSinkConfig, stream: pa.Schema | None, commits: bool = False) -> Sequence[Probe]:
    """Return the probes of a table, in order: each needs what the ones before it have reached.

    Args:
        commits: True: commit to a branch, too, and remove it.
    """
    looks = _Looks(config, stream)
    return [
        Probe("catalog", looks.catalog),
        Probe("namespace", looks.namespace),
        Probe("table", looks.table),
        Probe("schema", looks.schema),
        Probe("storage", looks.storage),
        *([Probe("commit", looks.commit)] if commits else []),
    ]


@contextmanager
def _conflicts(table: Table) -> Iterator[None]:
    try:
        yield
    except CommitFailedException as error:
        raise CommitConflictError(
            f"a commit to table {'.'.join(table.name())} failed: other writers changed it at the same time: {error}",
            hint="check again; drop branches of the table whose names begin with volley-check",
        ) from error


def how_committed(ref: TableRef, parks: bool) -> str:
    """Ask the catalog of a sink of many tables, and return how an epoch gets to them.

    Args:
        parks: True if a table that can't take its rows does not keep them from the others.
    """
    if parks:
        return "one table a commit, since on_error='park' lets each wait by itself"
    return _commits(ref, retry_reads(ref.load_catalog))


def _commits(ref: TableRef, catalog: Catalog) -> str:
    return "several tables in one commit" if takes_tables(ref, catalog) else "one table a commit"


class _Looks:
    def __init__(self, config: IcebergSinkConfig, stream: pa.Schema | None) -> None:
        self._config = config
        self._stream = stream
        self._namespace = ".".join(config.identifier[:-1])

    @cached_property
    def _catalog(self) -> Catalog:
        return self._config.ref.load_catalog()

    @cached_property
    def _table(self) -> Table | None:
        if not self._has_catalog:
            return None
        with self._config.ref.errors():
            try:
                return self._catalog.load_table(self._config.identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    @property
    def _has_catalog(self) -> bool:
        """False if the catalog is a SQLite file that the first job makes: opening it would make it now."""
        file = self._config.ref.file
        return file is None or Path(file).exists()

    def catalog(self) -> str:
        if not self._has_catalog:
            return f"{self._config.ref.address} does not exist yet: it will be created"
        with self._config.ref.errors():
            # Only a request shows that the catalog answers, and takes the credentials.
            try:
                self._catalog.list_namespaces()
            except (ForbiddenError, NotImplementedError):
                _ = self._table  # a job lists nothing
        ref = self._config.ref
        without = capabilities_of(ref, self._catalog).without
        commits = "" if ref.capabilities.transactions is False else f", {_commits(ref, self._catalog)}"
        return f"{ref.address}{without and f', {without}'}{commits}"

    def namespace(self) -> str:
        with self._config.ref.errors():
            if not (self._has_catalog and has_namespace(self._catalog, self._config.identifier[:-1])):
                return self._absent(f"namespace {self._namespace}")
        return self._namespace

    def table(self) -> str:
        if self._table is None:
            return self._absent(f"table {self._config.table_name}")
        snapshot = self._table.snapshot_by_name(self._config.branch)
        rows = "no snapshot yet" if snapshot is None else f"{rows_in(self._table.io, snapshot):,} rows"
        missing = ", ".join(unbounded(self._table))
        return f"{self._config.table_name}, {rows}{missing and f', without the properties {missing}'}"

    def schema(self) -> str:
        if self._stream is None:
            return "not known before the job runs"
        check_table(self._config, self._stream)
        return f"{len(self._stream)} columns fit"

    def storage(self) -> str:
        """Write, read and delete a file where the table's files are."""
        folder = self._folder()
        if folder is None:
            return "not known before the catalog has made the table"
        if self._table is None and isinstance(self._config.storage, LocalStorage):
            # It deletes the folders too that had to be made.
            return write_and_delete(folder, {})
        path = f"{folder}/volley-check-{uuid.uuid4().hex}"
        with storage_errors(path, "writing"), self._io().new_output(path).create() as file:
            file.write(_CONTENT)
        try:
            with storage_errors(path, "reading"), self._io().new_input(path).open() as written:
                content = written.read()
        finally:
            with storage_errors(path, "deleting"):
                self._io().delete(path)
        if content != _CONTENT:
            raise StorageError(f"{path} was read otherwise than it was written", hint="check what stands in between")
        return f"{folder}: written, read and deleted"

    def commit(self) -> str:
        """Commit a snapshot without rows to a branch of its own; remove both, and the files of the commit."""
        if self._table is None:
            return f"table {self._config.table_name} does not exist yet: nothing to commit to"
        if self._config.ref.capabilities.branches is False:
            return "not tried: the catalog's tables have no branch to commit to"
        table, branch = self._table, f"volley-check-{uuid.uuid4().hex}"
        head = table.current_snapshot()
        if head is None:
            return "not tried: the table has no snapshot yet, at which a branch could begin"
        with self._config.ref.errors(), _conflicts(table):
            # A catalog that does not know branches would else have the empty snapshot on main.
            table.manage_snapshots().create_branch(head.snapshot_id, branch).commit()
            with table.transaction() as transaction:
                add_empty_snapshot(transaction, branch, **{"volley.check": "true"})
            snapshot = table.snapshot_by_name(branch)
            assert snapshot is not None
            manifests = [
                manifest.manifest_path
                for manifest in snapshot.manifests(table.io)
                if manifest.added_snapshot_id == snapshot.snapshot_id
            ]
            table.manage_snapshots().remove_branch(branch).commit()
            table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
            for file in [*manifests, snapshot.manifest_list]:
                table.io.delete(file)
        return f"branch {branch}: committed and removed"

    def _io(self) -> FileIO:
        if self._table is not None:
            return self._table.io
        return load_file_io(self._config.ref.to_properties(), self._folder())

    def _folder(self) -> str | None:
        if self._table is not None:
            return f"{self._table.location().rstrip('/')}/data"
        if isinstance(self._config.ref.catalog, RestCatalog):
            # The server decides where the table will be.
            return None
        return self._config.storage.location(self._config.warehouse)

    def _absent(self, what: str) -> str:
        if not self._config.create_table:
            raise TableNotFoundError(f"{what} does not exist", hint="create it, or set create_table: true")
        return f"{what} does not exist yet: it will be created"
