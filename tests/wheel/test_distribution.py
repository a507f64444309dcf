"""What is published: complete metadata that an index takes, and all extras in an environment that has nothing else."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tarfile
from email import message_from_string
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.processes import ROOT
from tests.wheel.programs import call, install

HOST = "https://example.com/owner/volley"


def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_string(archive.read(name).decode())


@pytest.mark.nightly
@pytest.mark.parametrize("host", ["", HOST], ids=["without a host", "with a host"])
def test_an_index_takes_what_is_built(host: str, project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(project, folder)
    if host:
        settings = (folder / "setup.cfg").read_text()
        (folder / "setup.cfg").write_text(settings.replace("\n# url =\n", f"\nurl = {host}\n"))
    call(sys.executable, "-m", "build", "--outdir", "built", ".", folder=folder)
    built = sorted((folder / "built").iterdir())
    assert [file.suffix for file in built] == [".whl", ".gz"] or [file.suffix for file in built] == [".gz", ".whl"]
    printed = call(sys.executable, "-m", "twine", "check", "--strict", *built, folder=folder)
    assert printed.count("PASSED") == 2
    (wheel,) = (file for file in built if file.suffix == ".whl")
    told = metadata(wheel)
    assert "Programming Language :: Python :: 3.14" in told.get_all("Classifier", [])
    assert (told["License-Expression"], told["Author"]) == ("Apache-2.0", "The Volley authors")
    addresses = dict(each.split(", ") for each in told.get_all("Project-URL", []))
    assert set(addresses) == ({"Source", "Issues", "Documentation", "Changelog"} if host else set())
    description = str(told.get_payload())
    assert "Events become Apache Iceberg tables" in description
    assert re.findall(r"\]\((?!https?:)[^)]*\)", description) == []
    assert (f"]({host}/blob/" in description) == bool(host)
    (source,) = (file for file in built if file.suffix == ".gz")
    with tarfile.open(source) as archive:
        assert {"docs/index.md", "examples/flights.py", "CHANGELOG.md", "LICENSE"} <= {
            name.partition("/")[2] for name in archive.getnames()
        }


@pytest.mark.nightly
# Under load, an environment alone takes minutes.
@pytest.mark.timeout(1800)
def test_all_extras_run_the_tutorial_where_no_java_is(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(sys.executable, "-m", "venv", "own", folder=tmp_path)
    programs = tmp_path / "own" / "bin"
    # The page installs the two to look at its table.
    install(programs, f"{wheel}[all]", "duckdb", "polars")
    monkeypatch.setenv("PATH", str(without_java(tmp_path / "bin")))
    shutil.copy(ROOT / "tests" / "pages.py", tmp_path / "pages.py")
    printed = call(programs / "python", "pages.py", ROOT / "docs" / "tutorial.md", folder=tmp_path)
    assert printed.splitlines()[-1] == "all pages run"
    shutil.rmtree(tmp_path / "own")


def without_java(folder: Path) -> Path:
    """A folder of all programs of this machine's PATH but Java's."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            if not program.name.startswith("jav") and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return folder
