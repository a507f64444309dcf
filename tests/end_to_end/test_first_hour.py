"""A stranger's first hour as a script: a bad row is on the page, the pipeline is mended, the row is in its table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.duck import query
from tests.processes import ROOT, plain_environment


@pytest.mark.nightly
def test_from_a_new_project_to_a_replayed_row(tmp_path: Path) -> None:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", str(ROOT / "examples" / "first_hour.sh"), str(tmp_path / "shop")]
    environment = plain_environment(PATH=programs)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    said = done.stdout.splitlines()
    assert '{"id": 5, "item": "cup", "price": "8,50", "amount": 2, "at": "2026-11-02T12:00:00Z"}' in said
    assert "column price | JSON parse error: Column(/price) changed from number to string" in said
    assert "1 dead letter of 'orders' is replayed: 1 row" in said
    assert rows(tmp_path / "shop", "orders", "id, total") == [(1, 7.5), (2, 8.0), (4, 25.0), (5, 17.0)]
    assert rows(tmp_path / "shop", "bad_orders", "epoch, job, replayed is not null") == [(0, "orders", True)]


def rows(project: Path, table: str, columns: str) -> list[tuple[object, ...]]:
    """The rows of a table, read by DuckDB."""
    metadata = max((project / "lake").rglob(f"{table}/metadata/*.metadata.json"), key=lambda file: file.name)
    found: list[tuple[object, ...]] = query(f"select {columns} from iceberg_scan('{metadata}') order by 1").fetchall()
    return found
