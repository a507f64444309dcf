"""What rewrites of data files and of delete files share: the format of new files, tasks, the deletion of files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.table import Table, TableProperties

from volley.contracts.epoch import Epoch
from volley.contracts.sink import ExecutorTask
from volley.iceberg.catalogs.config import CatalogConfig
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.maintain.options import Runner
from volley.iceberg.read.history import head_of
from volley.iceberg.read.planning import plan
from volley.iceberg.schema.mapping import number_in
from volley.iceberg.storage.files import data_folder, file_system, list_folder, name_of
from volley.iceberg.table import TableRef
from volley.iceberg.write.table_format import TableFormat

__all__ = ["delete_files", "delete_lost", "delete_unused", "format_of", "run_tasks"]


def run_tasks(tasks: Sequence[ExecutorTask], run: Runner | None, results: list[Any], sweep: Callable[[], None]) -> None:
    """Run tasks, and add what they return for the commit to `results`, also if a later one fails.

    Args:
        run: Runs them; None = one after the other, in this process.
        results: The list to add to.
        sweep: Deletes the files of attempts that have failed: it is called if there may be some.
    """
    if run is None:
        for task in tasks:
            results += task().committables
        return
    try:
        done = run(tasks)
    except BaseException:
        sweep()
        raise
    results += [item for result in done for item in result.committables]
    if any(result.attempt for result in done):
        sweep()


def delete_lost(table: Table, prefix: str, known: Iterable[str]) -> None:
    """Delete the data and delete files that a failed attempt of a task has written.

    Args:
        prefix: The prefix of the names of all files that the tasks write.
        known: The locations of the files that tasks have returned; they stay.
    """
    with suppress(Exception):
        files = file_system(table.io, table.location())
        names = {name_of(path) for path in known}
        for path in list_folder(files, data_folder(table)):
            if name_of(path).startswith(prefix) and name_of(path) not in names:
                files.rm_file(path)


def delete_files(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files that no snapshot refers to; one that can't be deleted stays as an orphan."""
    for path in paths:
        with suppress(Exception):
            io.delete(path)


def delete_unused(table: Table, branch: str, paths: set[str]) -> None:
    """Delete files that were written for a commit, and are not in the attempt that has landed.

    Args:
        table: The table as the commit left it.
        branch: The branch that was written.
        paths: Their locations.
    """
    head = head_of(table, branch)
    if paths and head:
        # A snapshot of an earlier attempt may have landed unseen, and have expired since.
        files = plan(table.io, table.metadata, head).files
        paths = paths - {file.path for planned in files for file in (planned.file, *planned.deletes)}
    delete_files(table.io, paths)


def format_of(table: Table, ref: TableRef) -> TableFormat:
    """Return the format of new files of a table.

    Raises:
        ConfigError: If a ``write.…`` property of the table has a value that can't be used; names it.
    """
    assert isinstance(ref.catalog, CatalogConfig)
    config = IcebergSinkConfig(namespace=ref.identifier[:-1], table=ref.table, storage=ref.storage, catalog=ref.catalog)
    codec = table.properties.get(TableProperties.PARQUET_COMPRESSION, config.compression).lower()
    level = number_in(table.properties, TableProperties.PARQUET_COMPRESSION_LEVEL)
    config = config.with_compression("none" if codec == "uncompressed" else codec, level)  # type: ignore[arg-type]
    return TableFormat.for_table(table, config, Epoch(str(uuid.uuid4()), 0))
