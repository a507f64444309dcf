#!/usr/bin/env bash
# NumPy 2.4.6: np.unique of a million different int64 takes many times as long as a sort of them.
#
# Since 2.3, values are put into a hash table first, which pays where few differ. Where most do, np.sort and a comparison
# of neighbours gives the same.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import time

import numpy as np


def by_sort(numbers: np.ndarray) -> np.ndarray:
    ordered = np.sort(numbers)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]


def seconds(function, numbers: np.ndarray) -> float:
    """The CPU seconds of the fastest of three calls."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        function(numbers)
        taken.append(time.process_time() - began)
    return min(taken)


numbers = np.random.default_rng(1).permutation(1_000_000).astype(np.int64) * 3
assert np.array_equal(np.unique(numbers), by_sort(numbers))
unique, sort = seconds(np.unique, numbers), seconds(by_sort, numbers)
print(f"numpy {np.__version__}: np.unique {unique:.3f} CPU-s, np.sort and a comparison {sort:.3f}, {unique / sort:.0f} times")
assert unique > 4 * sort, "the behaviour has changed"
PYTHON
