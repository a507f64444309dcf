"""pytest's plugin for tables of another format version: `--format-version 3` has the tests make all tables with it.

Those for which a test asks for a version have that one. pyiceberg 0.12, by which many tests fill their tables, does not
write version 3: there the snapshots that tests make with it are written by Volley's code.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

import pytest

__all__ = ["use_version"]

VARIABLE = "VOLLEY_TEST_FORMAT_VERSION"
"""Has the version, for the processes that tests start."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--format-version", choices=["3"], help="make all tables of the tests with this format version")


def pytest_configure(config: pytest.Config) -> None:
    """Let this process, and those that it starts, make such tables."""
    if version := config.getoption("--format-version"):
        os.environ[VARIABLE] = version
        use_version()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of what only version 2 has."""
    if config.getoption("--format-version"):
        left_out = [item for item in items if item.get_closest_marker("format_2")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in {*left_out}]


def use_version() -> None:
    """Make new tables with the version that `VARIABLE` has."""
    if VARIABLE not in os.environ:
        return
    from pyiceberg.table import TableProperties
    from pyiceberg.table.update import snapshot

    from volley.iceberg import settings
    from volley.iceberg.pyiceberg_private.manifests import manifest_writer
    from volley.iceberg.pyiceberg_private.producer import Producer

    changed: Any = snapshot
    old_commit, old_writer = changed._SnapshotProducer._commit, changed.write_manifest

    def commit(self: Any) -> Any:
        return old_commit(self) if self._format_version < 3 or _is_by_volley() else Producer._commit(self)

    def writer(format_version: int, *arguments: Any, **compression: Any) -> Any:
        if format_version < 3:
            return old_writer(format_version, *arguments, **compression)
        return manifest_writer(format_version, *arguments, *compression.values())

    TableProperties.DEFAULT_FORMAT_VERSION = int(os.environ[VARIABLE])  # type: ignore[assignment]
    settings._FORMAT_VERSION = os.environ[VARIABLE]
    changed.write_manifest = writer
    for name in ("_snapshot", "_format_version"):
        setattr(changed._SnapshotProducer, name, Producer.__dict__[name])
    changed._SnapshotProducer._commit = commit


def _is_by_volley() -> bool:
    """Return True if Volley has called pyiceberg's writer, which fails at its users, too."""
    frame = inspect.currentframe()
    names = []
    while frame is not None:
        names.append(str(frame.f_globals["__name__"]))
        frame = frame.f_back
    callers = (name for name in names if name != __name__ and not name.startswith("pyiceberg."))
    return next(callers, "").startswith("volley.")


use_version()
