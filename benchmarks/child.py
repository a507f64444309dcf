"""``python -m benchmarks.child MODULE FUNCTION RUN``: one run in this process; the last line printed is its results."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from benchmarks.measure import adopt_orphans
from benchmarks.run import MissingPeerError, Run


def main() -> None:
    """Call the function with its run, which gets a folder for as long as it runs; a peer that is missing is skipped."""
    module, function, given = sys.argv[1:]
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="volley-bench-", ignore_cleanup_errors=True) as folder:
        run = Run(**json.loads(given), folder=Path(folder))
        try:
            getattr(import_module(module), function)(run)
        except MissingPeerError as reason:
            print(f"{run.label} skipped: {reason}", file=sys.stderr)
    print(json.dumps([asdict(result) for result in run.results]))


if __name__ == "__main__":
    main()
