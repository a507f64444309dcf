"""What closing files at a target size costs one task, and how near to their target they come."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.benchmark import benchmark
from benchmarks.events import FILES, batches, events_folder
from benchmarks.lake import Lake, write_epoch
from benchmarks.run import Run

_MB = 1 << 20
_MOST_PERCENT = 10


@benchmark(
    rows=4_000_000,
    peers=("1 MB", "4 MB", "16 MB", "64 MB", "10,000 rows", "100,000 rows", "1,000,000 rows"),
    figures=("rows_per_second", "rows_per_cpu_second", "files", "off_percent"),
    bounds=lambda row: row.below("off_percent", _MOST_PERCENT, "% off its target"),
)
def rolling(run: Run) -> None:
    """Files rolled by size or by rows: rows/s, files, how far the largest is from its target."""
    folder = events_folder(run.rows, run.rows // FILES)
    rows = list(batches(folder))
    number, unit = run.peer.replace(",", "").split()
    write_epoch(Lake(run.folder / "warm_up").config, 0, rows[:1])
    size, most = (float(number), None) if unit == "MB" else (float(_MB), int(number))
    config = replace(Lake(run.folder).config, target_file_size_mb=size, max_records=most)
    figures = run.measure(lambda: write_epoch(config, 0, rows))
    sizes = [each.file.file_size_in_bytes / _MB for each in Lake(run.folder).table().scan().plan_files()]
    # The smallest is the last one, which has the rows that are left.
    full = sorted(sizes)[1:] if unit == "MB" else []
    figures["files"] = len(sizes)
    figures["off_percent"] = max((abs(size / float(number) - 1) * 100 for size in full), default=None)
