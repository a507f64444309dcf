"""What the documents say is so: the tables of settings, the names of the reference, and the examples in docstrings."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import linecache
import re
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
import yaml

import volley
import volley.iceberg
import volley.testing
from tests.pages import Block, blocks
from volley import IcebergSinkConfig, IcebergSourceConfig, IcebergStorage

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
REQUIRED = {"catalog_uri", "warehouse", "namespace", "table", "storage", "catalog"}
# Set by the method of another setting, whose row tells of them.
WITH_ANOTHER = {"compression_level", "renames", "drops"}


def documented_settings(marked: str) -> dict[str, str]:
    """Setting → default, from the table behind a comment."""
    text = (ROOT / "docs" / "reference" / "settings.md").read_text()
    table = text.partition(f"<!-- {marked}:")[2].partition("\n\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.M))


def test_the_table_of_the_sources_settings_is_the_codes() -> None:
    listed = documented_settings("source settings")
    assert set(listed) == {field.name for field in fields(IcebergSourceConfig)} - REQUIRED - {
        "properties",
        "keys",
        "sequence",
    }
    config = IcebergSourceConfig("t", namespace="db", storage=IcebergStorage.Local("lake"))
    for name, text in listed.items():
        value = getattr(config, name)
        assert (value if isinstance(value, str) else repr(value)) == text
        assert getattr(config, f"with_{name}")(value) == config, name


def test_the_table_of_settings_is_the_codes() -> None:
    listed = documented_settings("settings")
    assert set(listed) == {field.name for field in fields(IcebergSinkConfig)} - REQUIRED - WITH_ANOTHER
    config = IcebergSinkConfig(namespace="db", table="t", storage=IcebergStorage.Local("lake"))
    for name, text in listed.items():
        if text == "None":
            assert getattr(config, name) is None
            assert callable(getattr(config, f"with_{name}"))
        else:
            value = text if text.isidentifier() and text != "True" else ast.literal_eval(text)
            assert getattr(config, f"with_{name}")(value) == config, name


MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "volley").rglob("*.py"))
    if ">>>" in path.read_text()
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module: str) -> None:
    # Each example asks for the state of every file whose lines are cached.
    linecache.clearcache()
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0


def test_every_public_name_has_a_docstring() -> None:
    for name in volley.__all__:
        thing = getattr(volley, name)
        assert getattr(thing, "__doc__", None), name


@pytest.mark.parametrize("package", [volley, volley.iceberg, volley.testing], ids=lambda package: package.__name__)
def test_every_public_name_is_in_the_reference(package: ModuleType) -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    listed = {name.rpartition(".")[2] for name in re.findall(r"^::: (volley[\w.]+)$", pages, re.M)}
    assert {name for name in package.__all__ if not isinstance(getattr(package, name), ModuleType)} - listed == set()


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES[1:])


def code(page: Path, language: str) -> list[Block]:
    return [block for block in blocks(page.read_text()) if block.language == language]


@pytest.mark.parametrize("interface", ["Source", "Sink"])
def test_a_source_and_a_sink_of_ones_own_are_a_page_each(interface: str) -> None:
    page = ROOT / "docs" / "how-to" / "own-source-and-sink.md"
    (block,) = [block for block in code(page, "python") if f"({interface})" in block.text]
    assert {"Source": "(Reader)", "Sink": "(Committer)"}[interface] in block.text
    assert len(block.text.splitlines()) < 60


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_blocks_can_be_read(page: Path) -> None:
    for block in code(page, "python"):
        ast.parse(block.text)
    for block in code(page, "yaml"):
        assert yaml.safe_load(block.text)


def test_links_of_the_readme_lead_somewhere() -> None:
    """Those of the other pages are checked when the site is built."""
    targets = re.findall(r"\]\(([^)#:]+)[^)]*\)", PAGES[0].read_text())
    assert len(targets) > 10
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_users_import_from_one_place() -> None:
    """Pages, examples, notebooks and docstrings need no inner module; tests of pipelines have one of their own."""
    shown = [*PAGES, *(ROOT / "examples").glob("*.py"), *(ROOT / "notebooks").glob("*.ipynb")]
    texts = {str(path): path.read_text() for path in shown if "maintainers" not in path.parts}
    for name in volley.__all__:
        thing = getattr(volley, name)
        documents = [inspect.getdoc(member) or "" for member in (thing, *getattr(thing, "__dict__", {}).values())]
        texts[name] = "\n".join(documents).replace(">>> ", "")
    inner = re.compile(r"^ *\"?(?:from|import) volley\.(?!testing\b)\w+", re.M)
    assert {name: found for name, text in texts.items() if (found := inner.findall(text))} == {}


def test_the_page_of_troubles_has_the_words_that_are_shown() -> None:
    page = (ROOT / "docs" / "how-to" / "troubleshooting.md").read_text()
    told = re.findall(r"`([^`]+)`", "\n".join(re.findall(r"^### .*", page, re.M)))
    sources = "".join(path.read_text() for path in (ROOT / "volley").rglob("*.py"))
    # Texts over several lines, and what is put into them, are one.
    sources = re.sub(r'" *\n *f?"', "", sources)
    parts = [part.strip(" :") for words in told for part in words.split("…")]
    assert len(told) > 15
    assert [part for part in parts if part not in sources] == []


def test_each_number_of_the_home_page_stands_in_its_source() -> None:
    home = (ROOT / "docs" / "index.md").read_text()
    rows = re.findall(r"^\| \*\*(.*?)\*\* \| (.*?) \| \[.*?\]\(([\w/-]+\.md)", home, re.M)
    assert len(rows) == 4
    for number, what, source in rows:
        page = (ROOT / "docs" / source).read_text()
        figures = re.findall(r"\d[\d.,]*\d|\d", f"{number} {what}")
        assert [figure for figure in figures if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d])", page)] == []


PICTURES = sorted((ROOT / "docs" / "images").glob("*.svg"))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_a_diagram_stands_alone(picture: Path) -> None:
    """It is a file without a script and without anything from elsewhere, has a title, and stands in a page with one."""
    text = picture.read_text()
    assert ElementTree.fromstring(text).findtext("{http://www.w3.org/2000/svg}title")
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<script|<foreignObject|\bon\w+=|\bhref=", text)
    shown = [title for page in PAGES for title in re.findall(rf"!\[(.*?)\]\([^)]*{picture.name}\)", page.read_text())]
    assert shown
    assert all(len(title) > 40 for title in shown)


def test_what_the_comparison_says_of_others_has_a_source() -> None:
    """Each column of its table has rows of sources, with whole links."""
    page, _, sources = (ROOT / "docs" / "explanation" / "comparison.md").read_text().partition("## Sources")
    (head,) = re.findall(r"^\| \| Volley \| (.*) \|$", page, re.M)
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in sources.splitlines() if row.startswith("| ")]
    assert set(head.split(" | ")) <= {row[0] for row in rows}
    assert all(len(row) == 4 and (re.search(r"\]\(https://", row[3]) or "here" in row[3]) for row in rows[2:])


def test_most_notebooks_show_a_picture_stored_in_them() -> None:
    texts = [path.read_text() for path in (ROOT / "notebooks").glob("*.ipynb")]
    assert sum('"image/png"' in text for text in texts) >= 6
    # Nothing of them comes from elsewhere.
    assert [text for text in texts if re.search(r"<(script|link|iframe)|src=\\?\"https?:", text)] == []
