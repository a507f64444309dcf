"""The pages for maintainers name files, tests and targets that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.processes import ROOT

PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "maintainers").rglob("*.md"))]
PATH = re.compile(r"`((?:volley|tests|docs|benchmarks|findings)/[^`<\s]*)`")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_paths_and_targets_are_there(page: Path) -> None:
    text = page.read_text()
    paths = PATH.findall(text)
    assert [path for path in paths if not list(ROOT.glob(path.rstrip("/")))] == []
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= TARGETS
