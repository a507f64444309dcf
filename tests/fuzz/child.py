"""Reads mutated files of one target in a process of its own, which a native library may take down."""

from __future__ import annotations

import logging
import random
import resource
import sys
import tempfile
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.fuzz.mutations import mutated
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS
from volley import VolleyError

__all__ = ["run_cases"]

_MEMORY = 4 << 30


def run_cases(target: Target, seed: int, count: int, progress: Path | None = None) -> Counter[str]:
    """Read this many mutations of a target's files, and count what came of them.

    Args:
        target: The target.
        seed: Chooses the mutations.
        count: How many.
        progress: A file that names the case that runs.

    Returns:
        Counts of "refused" and "read", and of each failure's text.
    """
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="volley-fuzz-") as name:
        folder = Path(name)
        files = target.make(folder)
        originals = {file: file.read_bytes() for file in files}
        original = target.read(folder)
        for case in range(count):
            if progress is not None:
                progress.write_text(f"{seed} {case}")
            choose = random.Random(f"{target.name} {seed} {case}")
            file = choose.choice(files)
            file.write_bytes(mutated(originals[file], choose))
            outcomes[_outcome(target, folder, original, file, f"seed {seed}, case {case}")] += 1
            file.write_bytes(originals[file])
    return outcomes


def _outcome(target: Target, folder: Path, original: object, file: Path, case: str) -> str:
    try:
        value = target.read(folder)
    except VolleyError:
        return "refused"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in where if "/volley/" in frame.filename][-1:]
        place = ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in ours)
        return f"{type(error).__name__} at {place}: {error!s:.120} ({case}, {file.name})"
    with suppress(ValueError):
        # A judge that can't read the file disagrees.
        if target.is_right(value, original, file):
            return "read"
    return f"another value ({case}, {file.name})"


def main(name: str, seed: int, count: int, progress: str) -> None:
    """Run the cases, and print each outcome with its count."""
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for outcome, times in run_cases(TARGETS[name], seed, count, Path(progress)).items():
        print(times, outcome.replace("\n", " "))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
