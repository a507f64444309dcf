"""The pipelines of the other tests, unchanged but for the master's address."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.standalone import Cluster
from tests.recovery.runs import check_exactly_once, run, write_input


@pytest.mark.parametrize("path", ["arrow-native", "general"])
def test_only_the_master_changes(cluster: Cluster, tmp_path: Path, path: str) -> None:
    write_input(tmp_path)
    done = run(tmp_path, path, "--master", cluster.master)
    assert (done.returncode, done.stdout) == (0, "")
    check_exactly_once(tmp_path)
