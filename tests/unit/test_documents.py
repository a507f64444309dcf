"""What the documents say is so: README's table of settings, and the examples in docstrings."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
from dataclasses import fields
from pathlib import Path

import pytest

import volley
from volley import IcebergSinkConfig, IcebergSourceConfig, IcebergStorage

ROOT = Path(__file__).parents[2]
REQUIRED = {"catalog_uri", "warehouse", "namespace", "table", "storage", "catalog"}
# Set by the method of another setting, whose row tells of them.
WITH_ANOTHER = {"compression_level", "renames", "drops"}


def settings_of_the_readme(marked: str) -> dict[str, str]:
    """Setting → default, from the table behind a comment."""
    text = (ROOT / "README.md").read_text()
    table = text.partition(f"<!-- {marked}:")[2].partition("\n\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.M))


def test_the_table_of_the_sources_settings_is_the_codes() -> None:
    listed = settings_of_the_readme("source settings")
    assert set(listed) == {field.name for field in fields(IcebergSourceConfig)} - REQUIRED - {"properties", "keys"}
    config = IcebergSourceConfig("t", namespace="db", storage=IcebergStorage.Local("lake"))
    for name, text in listed.items():
        value = getattr(config, name)
        assert (value if isinstance(value, str) else repr(value)) == text
        assert getattr(config, f"with_{name}")(value) == config, name


def test_the_table_of_settings_is_the_codes() -> None:
    listed = settings_of_the_readme("settings")
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
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0


def test_every_public_name_has_a_docstring() -> None:
    for name in volley.__all__:
        thing = getattr(volley, name)
        assert getattr(thing, "__doc__", None), name


def test_a_source_of_ones_own_is_a_page() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (example,) = [block for block in blocks if "(Source)" in block]
    assert "(Reader)" in example
    assert len(example.splitlines()) < 60


def test_code_blocks_of_the_readme_are_python() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(blocks) >= 4
    for block in blocks:
        ast.parse(block)
