"""What an installation has, by the names in its requirements; and a Python that has nothing else."""

from __future__ import annotations

import builtins
import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from configparser import ConfigParser
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
OURS = "volley-stream"
_SETUP = ConfigParser()
_SETUP.read(ROOT / "setup.cfg")
EXTRAS = set(_SETUP["options.extras_require"])
# As the README says.
USUAL = f"{OURS}[jre]"


def installed_by(text: str) -> list[str]:
    """The requirements of the lines ``pip install …`` in a page's text."""
    lines = re.findall(r"pip install ([^\n`&#;]+)", text)
    words = [word for line in lines for word in shlex.split(line) if not word.startswith("-")]
    return [re.sub(r"^(\.|/path/to/volley)(?=\[|$)", OURS, word) for word in words]


def distributions(requirements: Sequence[str]) -> set[str]:
    """The names of all packages that come with these, extras included.

    Raises:
        LookupError: If there is no such extra, or a package is not installed here.
    """
    found: dict[str, set[str]] = {}
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        each = waiting.pop()
        name = canonicalize_name(each.name)
        new = {"", *each.extras} - found.setdefault(name, set())
        found[name] |= new
        if new:
            waiting += _required(name, new)
    return set(found)


def _required(name: str, extras: set[str]) -> list[Requirement]:
    if name == OURS:
        if unknown := extras - EXTRAS - {""}:
            raise LookupError(f"{OURS} has no extra {', '.join(unknown)}")
        texts = [_SETUP["options"]["install_requires"]] if "" in extras else []
        texts += [_SETUP["options.extras_require"][extra] for extra in extras - {""}]
        return [Requirement(line) for text in texts for line in text.splitlines() if line and line[0] != "#"]
    try:
        declared = [Requirement(line) for line in requires(name) or ()]
    except PackageNotFoundError:
        raise LookupError(f"{name} is not installed here") from None
    return [each for each in declared if _holds(each, extras)]


def _holds(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


def absent(requirements: Sequence[str]) -> set[str]:
    """The importable names that are here, and not where only these are installed."""
    there = distributions(requirements)
    names = packages_distributions().items()
    return {name for name, owners in names if not there & {canonicalize_name(owner) for owner in owners}} - {OURS}


@contextmanager
def only(requirements: Sequence[str]) -> Iterator[None]:
    """Let pages and Volley import what these requirements bring, and nothing else; other packages import all."""
    missing = absent(requirements) - {"volley", "tests"}
    importing, loading, finding = builtins.__import__, importlib.import_module, importlib.util.find_spec

    def check(name: str, importer: object) -> None:
        if name.partition(".")[0] in missing and re.match(r"__main__$|volley(\.|$)", str(importer)):
            raise ModuleNotFoundError(f"No module named {name!r}: only {', '.join(requirements)} is there", name=name)

    def import_(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if level == 0:
            check(name, (globals or {}).get("__name__"))
        return importing(name, globals, locals, fromlist, level)

    def import_module(name: str, package: str | None = None) -> Any:
        check(name, sys._getframe(1).f_globals.get("__name__"))
        return loading(name, package)

    def find_spec(name: str, package: str | None = None) -> Any:
        return None if name.partition(".")[0] in missing else finding(name, package)

    builtins.__import__, importlib.import_module, importlib.util.find_spec = import_, import_module, find_spec
    try:
        yield
    finally:
        builtins.__import__, importlib.import_module, importlib.util.find_spec = importing, loading, finding
