"""The README's code, the notebook and the examples run as they stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.processes import ROOT, plain_environment


def run(folder: Path, *arguments: str) -> str:
    """Run Python in `folder`; returns what it prints."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=plain_environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readmes_code_runs(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    events = [{"id": i, "status": "active" if i % 2 else "gone", "price": 2.5, "amount": i} for i in range(100)]
    (tmp_path / "events" / "1.json").write_text("".join(json.dumps(event) + "\n" for event in events))
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (tmp_path / "readme.py").write_text("\n".join([*blocks, "test_with_gross()"]))
    printed = run(tmp_path, "readme.py")
    assert "50 rows in 1 epochs" in printed
    assert "total: [[12.5" in printed
    assert "unknown column 'statsu'" in printed
    assert "did you mean 'status'" in printed
    assert printed.splitlines()[-1] == "2500"


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("COVERAGE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert any("DataStream" in output.get("data", {}).get("text/html", "") for output in outputs)


def test_the_demo_proves_what_it_says(tmp_path: Path) -> None:
    printed = run(ROOT, "-m", "examples.flights", str(tmp_path / "flights"))
    assert "SIGKILL" in printed
    assert "Proven: every flight exactly once" in printed
