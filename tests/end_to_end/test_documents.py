"""The code of the README and the other pages, the notebook and the examples run as they stand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

from tests.processes import ROOT, plain_environment
from tests.tiers import some

# The seconds that all pages together may take, also beside other work.
_SECONDS = 560


def run(folder: Path, *arguments: str) -> str:
    """Run Python in `folder`; returns what it prints."""
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=plain_environment(), capture_output=True, text=True, timeout=_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# The configurations of this page run beside the servers that they name.
ELSEWHERE = {"catalogs-and-storage"}


FIRST_PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "tutorial.md"]
GUIDES = [page for page in sorted((ROOT / "docs" / "how-to").glob("*.md")) if page.stem not in ELSEWHERE]


@pytest.mark.timeout(_SECONDS + 30)
@pytest.mark.parametrize("pages", some([FIRST_PAGES, GUIDES]), ids=["first pages", "guides"])
def test_the_code_of_the_pages_runs_and_prints_what_they_say(pages: list[Path], tmp_path: Path) -> None:
    assert run(tmp_path, "-m", "tests.pages", *map(str, pages)).splitlines()[-1] == "all pages run"


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    """A kernel for all notebooks: each begins without the names of another, but with its imports and its Spark."""
    manager = KernelManager(client_class="jupyter_client.asynchronous.AsyncKernelClient")
    manager.start_kernel(env=plain_environment())
    yield manager
    manager.shutdown_kernel()


@pytest.mark.parametrize("path", some(sorted((ROOT / "notebooks").glob("*.ipynb"))), ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, kernel: KernelManager) -> None:
    notebook = nbformat.read(path, as_version=4)
    stored = kinds_of_outputs(notebook)
    assert any(stored), "stored with its outputs"
    notebook.cells.insert(0, new_code_cell(f"%reset -f\n%cd -q {tmp_path}"))
    NotebookClient(notebook, kernel, timeout=300).execute()
    assert kinds_of_outputs(notebook)[1:] == stored


def kinds_of_outputs(notebook: Any) -> list[list[str]]:
    """For each cell, what it shows: texts, tables, pictures. Progress lines on standard error may come or not."""
    shown = [
        [output for output in cell.get("outputs", []) if output.get("name") != "stderr"] for cell in notebook.cells
    ]
    return [sorted({kind for output in cell for kind in output.get("data", ["text"])}) for cell in shown]


@pytest.mark.nightly
def test_the_demo_proves_what_it_says(tmp_path: Path) -> None:
    printed = run(ROOT, "-m", "examples.flights", str(tmp_path / "flights"))
    assert "SIGKILL" in printed
    assert "Proven: every flight exactly once" in printed


@pytest.mark.nightly
def test_the_example_of_windows_agrees_with_itself(tmp_path: Path) -> None:
    printed = run(ROOT, "-m", "examples.windows", str(tmp_path / "windows"))
    assert "current figures are the same as the final ones: True" in printed
