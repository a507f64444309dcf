"""The distribution's name, version, extras and files fit together."""

from __future__ import annotations

import configparser
import re
import runpy
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import volley
from tests.wheel.test_first_project import VERSIONS

ROOT = Path(__file__).parents[2]


def config() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_the_installed_distribution_is_this_one() -> None:
    assert metadata.version("volley-stream") == volley.__version__


def test_extras() -> None:
    wanted = {
        "spark",
        "kafka",
        "protobuf",
        "postgres",
        "mysql",
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
        "lineage",
        "otel",
        "all",
        "dev",
    }
    extras = config()["options.extras_require"]
    assert set(extras) == wanted
    of_all = ",".join(re.findall(r"\[(.*)\]", extras["all"]))
    assert {*of_all.split(",")} == wanted - {"all", "dev"}


def test_constraints_pin_every_requirement() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.+!-]+", line) for line in lines)
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines}
    required = [
        *config()["options"]["install_requires"].split("\n"),
        *config()["options.extras_require"]["spark"].split("\n"),
    ]
    names = {re.split(r"[\[<>=]", line)[0].lower().replace("_", "-") for line in required if line}
    assert names <= pinned


def test_the_package_is_typed() -> None:
    assert (ROOT / "volley" / "py.typed").exists()


def described(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the set-up of a folder says of its package."""
    given: dict[str, Any] = {}
    monkeypatch.setattr("setuptools.setup", given.update)
    runpy.run_path(str(folder / "setup.py"))
    assert given["long_description_content_type"] == "text/markdown"
    return given


def test_the_description_has_no_links_into_a_project_without_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    given = described(ROOT, monkeypatch)
    links = re.compile(r"\]\((?!https?:)")
    assert links.search((ROOT / "README.md").read_text())
    assert not links.search(given["long_description"])
    assert (
        "* **Tables as you need them.** Upserts, histories, overwrites, schema evolution, branches"
        in given["long_description"]
    )
    assert given["project_urls"] == {}


HOST = "https://example.com/owner/volley"


def test_the_description_of_a_project_with_a_host_has_only_whole_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One value is to be filled: `url`."""
    (tmp_path / "volley").mkdir()
    shutil.copy(ROOT / "volley" / "__init__.py", tmp_path / "volley")
    shutil.copy(ROOT / "setup.py", tmp_path)
    settings = (ROOT / "setup.cfg").read_text()
    (tmp_path / "setup.cfg").write_text(settings.replace("\n# url =\n", f"\nurl = {HOST}/\n"))
    (tmp_path / "README.md").write_text("[a page](docs/a.md#b) ![a picture](docs/images/a.png) [out](https://c.org)\n")
    given = described(tmp_path, monkeypatch)
    tag = f"v{volley.__version__}"
    assert given["long_description"] == (
        f"[a page]({HOST}/blob/{tag}/docs/a.md#b) ![a picture]({HOST}/raw/{tag}/docs/images/a.png) [out](https://c.org)\n"
    )
    assert given["project_urls"] == {
        "Source": HOST,
        "Issues": f"{HOST}/issues",
        "Documentation": f"{HOST}/blob/main/docs/index.md",
        "Changelog": f"{HOST}/blob/main/CHANGELOG.md",
    }
    assert all(
        (ROOT / url.partition("/main/")[2]).is_file() for url in given["project_urls"].values() if "/main/" in url
    )


def test_the_supported_pythons_are_those_of_the_metadata() -> None:
    versions = re.findall(r"Python :: (3\.\d+)$", config()["metadata"]["classifiers"], re.M)
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert config()["options"]["python_requires"] == f">={versions[0]}"
    assert tuple(versions) == VERSIONS
