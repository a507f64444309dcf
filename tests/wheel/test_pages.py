"""Each page of the documents, in an environment that has what the page installs and nothing else."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.installs import OURS, ROOT, USUAL, installed_by
from tests.pages import blocks
from tests.wheel.programs import call, install


def environments() -> dict[tuple[str, ...], list[Path]]:
    """The pages that have Python or name requirements, by what they install."""
    found: dict[tuple[str, ...], list[Path]] = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text()
        requirements = installed_by(text)
        if requirements or any(block.language == "python" for block in blocks(text)):
            found.setdefault(tuple(sorted(_plain(requirements or [USUAL]))), []).append(page)
    return found


def _plain(requirements: list[str]) -> list[str]:
    """Volley with all extras that the page names, as one requirement; and the other packages."""
    extras = {extra for each in map(Requirement, requirements) if each.name == OURS for extra in each.extras}
    others = {each for each in requirements if Requirement(each).name != OURS}
    return [f"{OURS}[{','.join(sorted(extras))}]" if extras else OURS, *others]


ENVIRONMENTS = environments()


def test_all_kinds_of_pages_are_among_them() -> None:
    names = {page.stem for pages in ENVIRONMENTS.values() for page in pages}
    assert names >= {"README", "tutorial", "kafka", "yaml", "commands", "catalogs-and-storage", "errors"}


@pytest.mark.nightly
# Under load, an environment alone takes minutes.
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("requirements", "pages"), ENVIRONMENTS.items(), ids=[" ".join(each) for each in ENVIRONMENTS])
def test_the_pages_run_where_only_what_they_install_is(
    requirements: tuple[str, ...], pages: list[Path], wheel: Path, tmp_path: Path
) -> None:
    call(sys.executable, "-m", "venv", "own", folder=tmp_path)
    programs = tmp_path / "own" / "bin"
    install(programs, *(each.replace(OURS, str(wheel)) for each in requirements))
    # Alone in its folder: the tests' other modules are not there.
    shutil.copy(ROOT / "tests" / "pages.py", tmp_path / "pages.py")
    printed = call(programs / "python", "pages.py", *pages, folder=tmp_path)
    assert printed.splitlines()[-1] == "all pages run"
    if any("cli" in Requirement(each).extras for each in requirements):
        assert "volley check" in call(programs / "volley", "check", "--help", folder=tmp_path)
    # Each takes half a gigabyte.
    shutil.rmtree(tmp_path / "own")
