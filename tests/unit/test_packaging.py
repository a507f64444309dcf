"""The distribution's name, version, extras and files fit together."""

from __future__ import annotations

import configparser
import re
import runpy
from importlib import metadata
from pathlib import Path

import pytest

import volley

ROOT = Path(__file__).parents[2]


def config() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_the_installed_distribution_is_this_one() -> None:
    assert metadata.version("volley-stream") == volley.__version__


def test_extras() -> None:
    wanted = {
        "kafka",
        "postgres",
        "http",
        "s3",
        "azure",
        "gcs",
        "glue",
        "hive",
        "sql",
        "analytics",
        "cli",
        "jre",
        "all",
        "dev",
    }
    extras = config()["options.extras_require"]
    assert set(extras) == wanted
    (of_all,) = re.findall(r"\[(.*)\]", extras["all"])
    assert {*of_all.split(",")} == wanted - {"all", "dev"}


def test_constraints_pin_every_requirement() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.+!-]+", line) for line in lines)
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines}
    required = config()["options"]["install_requires"].split("\n")
    names = {re.split(r"[\[<>=]", line)[0].lower().replace("_", "-") for line in required if line}
    assert names <= pinned


def test_the_package_is_typed() -> None:
    assert (ROOT / "volley" / "py.typed").exists()


def test_the_description_has_no_links_into_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, str] = {}
    monkeypatch.setattr("setuptools.setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    links = re.compile(r"\]\((?!https?:)")
    assert links.search((ROOT / "README.md").read_text())
    assert not links.search(given["long_description"])
    assert "* **Tables as you need them.** Upserts, overwrites, schema evolution, branches" in given["long_description"]
    assert given["long_description_content_type"] == "text/markdown"
