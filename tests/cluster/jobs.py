"""Several jobs, one after the other, of one driver on the cluster: an application's start costs more than a job."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

from tests.cluster.faults import lose_executor, lose_host, run
from tests.recovery import pipeline, remote_pipeline
from tests.recovery.remote import RemoteLake
from tests.servers.seaweed import Seaweed


def main(folder: Path, master: str, rest_uri: str, s3_endpoint: str, table: str) -> None:
    """Each job has a folder of its own, with its input, and one writes to a remote table; orphans are printed."""
    orphans = {"plain": pipeline.main(folder / "plain", master).orphans}
    remote_pipeline.run(folder / "s3", RemoteLake(Seaweed(rest_uri, s3_endpoint), rest_uri, table).config, master)
    for name, fault in {"executor": lose_executor, "host": lose_host}.items():
        orphans[name] = run(folder / name, master, partial(fault, folder / name / "struck")).orphans
    print(json.dumps(orphans))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
