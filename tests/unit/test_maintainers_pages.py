"""The pages for maintainers name files, tests and targets that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.processes import ROOT

PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "maintainers").rglob("*.md"))]
PATH = re.compile(r"`((?:volley|tests|docs|benchmarks|findings)/[^`<\s]*)`")
MODULE = re.compile(r"`([a-z][a-z_*/]*(?:\.py|/))`")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def is_there(path: str) -> bool:
    """Whether a room or a module has this name in the library or its tests."""
    return any(list((ROOT / folder).rglob(path)) for folder in ("volley", "tests", "docs", "benchmarks"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_paths_and_targets_are_there(page: Path) -> None:
    text = page.read_text()
    paths = PATH.findall(text)
    assert [path for path in paths if not list(ROOT.glob(path.rstrip("/")))] == []
    modules = [path.rstrip("/") for path in MODULE.findall(text) if path not in paths]
    assert [path for path in modules if not is_there(path)] == []
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= TARGETS


def test_the_glossary_is_short_and_its_words_are_used() -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| [^|]+ \| ?([^|]*) ?\|$", (ROOT / "docs/maintainers/glossary.md").read_text(), re.M
    )
    words = [word for word, _ in rows if word not in ("word", "---")]
    assert len(words) == len(set(words)) <= 45
    # Of the words that it refuses, those that mean nothing else.
    refused = {"micro-batch", "misfit", "chore"}
    assert refused <= {word for _, others in rows for word in others.strip().split(", ")}
    texts = {path: path.read_text().lower() for path in (ROOT / "volley").rglob("*.py")}
    assert [(path.name, word) for path, text in texts.items() for word in refused if word in text] == []
