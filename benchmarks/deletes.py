"""Deletion vectors of format version 3 beside the position-delete files of version 2."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile

from benchmarks.benchmark import Limit, Run, benchmark
from benchmarks.lake import QUERY, Lake, open_sink
from benchmarks.measure import medians, timed
from volley.contracts.epoch import Epoch
from volley.iceberg.pyiceberg_private.entries import data_file, file_attributes
from volley.iceberg.read.delete_files import deleted_positions
from volley.iceberg.read.entries import EntryStatus, FileEntry
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.vectors import write_deletes
from volley.iceberg.write.written import WrittenFile

_FILES = 100
_POSITIONS, _VECTORS = "position-delete files", "deletion vectors"
_VERSIONS = {_POSITIONS: "2", _VECTORS: "3"}
_RANGES = "a range of each file"

_Positions = np.ndarray[Any, Any]


@benchmark(
    rows=1_000_000,
    options={"times": 7},
    case="deleted rows",
    figures=("write_ms", "read_ms", "megabytes", "files"),
    plots=("write_ms", "read_ms"),
    bounds=[
        Limit(figure, unit, most=most, of=_VECTORS, beside=_POSITIONS)
        for figure, unit, most in (
            ("write_ms", "CPU to write", 0.25),
            ("read_ms", "CPU to read", 0.1),
            ("megabytes", "bytes", 0.65),
        )
    ],
)
def deletes(run: Run) -> None:
    """A million deleted rows in 100 data files: CPU to write and to read which, and the bytes of that."""
    dice, a_file = np.random.default_rng(1), run.rows // _FILES
    cases = {f"1 in {share}": partial(_random, dice, a_file, share) for share in (10, 100)}
    for case, positions in {**cases, _RANGES: partial(np.arange, a_file)}.items():
        deleted = [(_data_file(number, 100 * a_file), positions()) for number in range(_FILES)]
        costs = dict[str, list[dict[str, float]]]((peer, []) for peer in _VERSIONS)
        # The peers take turns; the first time warms up.
        for time in range(run.options["times"]):
            for peer, version in _VERSIONS.items():
                costs[peer].append(_cost(run, f"t{version}", version, deleted, case, time))
        for peer, each in costs.items():
            run.record(peer, case, **medians(each[1:]))


def _cost(
    run: Run, name: str, version: str, deleted: list[tuple[DataFile, _Positions]], case: str, time: int
) -> dict[str, float]:
    table_format = _format(Lake(run.folder), name, version)
    written = list[WrittenFile]()
    writing = timed(lambda: written.extend(write_deletes(table_format, deleted)))
    found = list[_Positions]()
    reading = timed(lambda: found.extend(_read(table_format, written, deleted)))
    assert all(np.array_equal(np.sort(now), then) for now, (_, then) in zip(found, deleted, strict=True)), (case, time)
    sizes = {file.path: file.data_file.file_size_in_bytes for file in written}
    return {
        "write_ms": writing["cpu_ms"],
        "read_ms": reading["cpu_ms"],
        "megabytes": sum(sizes.values()) / 1e6,
        "files": len(sizes),
    }


def _read(
    table_format: TableFormat, written: list[WrittenFile], deleted: list[tuple[DataFile, _Positions]]
) -> list[_Positions]:
    numbers: dict[str, Any] = {
        "status": EntryStatus.ADDED,
        "snapshot_id": 1,
        "sequence_number": 1,
        "file_sequence_number": 1,
    }
    entries = [FileEntry(**numbers, **file_attributes(file.data_file)) for file in written]
    pairs = zip(deleted, entries, strict=True)
    return [deleted_positions(table_format.io, file.file_path, entry) for (file, _), entry in pairs]


def _format(lake: Lake, name: str, version: str) -> TableFormat:
    config = lake.named(name).with_table_properties({"format-version": version})
    open_sink(config, pa.schema({"id": pa.int64()}))
    return TableFormat.for_table(config.ref.load(), config, Epoch(QUERY, 0))


def _data_file(number: int, rows: int) -> DataFile:
    """The description of a data file, which nothing reads."""
    return data_file(f"file:///lake/b/t/data/{number:032}.parquet", "PARQUET", 0, (), rows, rows)


def _random(dice: np.random.Generator, count: int, share: int) -> _Positions:
    return np.sort(dice.choice(count * share, count, replace=False))
