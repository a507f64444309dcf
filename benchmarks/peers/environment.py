"""A virtual environment of its own for each peer whose packages do not go together with the tests'."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.run import Result, Run

__all__ = ["PeerEnvironment"]

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class PeerEnvironment:
    """Packages in a virtual environment under the user's cache, made when it is first needed.

    Args:
        name: Its folder's name.
        requirements: The packages, pinned; with others the environment is made anew.
        jars: Maven's coordinates of the jars it takes, ``group:artifact:version``; with them it gets Java too.
    """

    name: str
    requirements: tuple[str, ...]
    jars: tuple[str, ...] = ()

    def missing(self) -> str | None:
        """Why the peer can't run here, or None if it can."""
        import pytest

        try:
            self._python()
            self._java()
        except subprocess.CalledProcessError as reason:
            return str(reason.stderr).strip().splitlines()[-1]
        except (OSError, pytest.skip.Exception, pytest.fail.Exception) as reason:
            return str(reason)
        return None

    def run(self, run: Run, work: Callable[[Run], None], options: Mapping[str, Any], **variables: str) -> list[Result]:
        """Run a function, at the top of its module, in this environment.

        Args:
            run: The run, with the rows that this peer takes.
            work: The function; its module imports no more than is installed there.
            options: What its run is told, and ``jars``, their paths.
            variables: Environment variables beside this process's.

        Returns:
            What it has found; nothing, and the reason is printed, if the peer can't run here.
        """
        if reason := self.missing():
            print(f"{run.label} skipped: {reason}", file=sys.stderr)
            return []
        given = {**os.environ, "PYTHONPATH": str(_ROOT), **self._java(), **variables}
        return run.apart(work, given, str(self._python()), options={**options, "jars": self._paths()})

    def _python(self) -> Path:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "volley" / "peers" / self.name
        python, listed = folder / "bin" / "python", folder / "requirements.txt"
        # `benchmarks.measure` imports psutil.
        wanted = "\n".join([*self.requirements, "psutil==7.2.2"])
        if not listed.exists() or listed.read_text() != wanted:
            _done(sys.executable, "-m", "venv", "--clear", str(folder))
            _done(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted.splitlines())
            # Written last: an environment that was cut short is not taken for a whole one.
            listed.write_text(wanted)
        return python

    def _java(self) -> dict[str, str]:
        """The variable that names Java, and the jars downloaded, if the peer takes some."""
        from tests.servers.downloads import java

        return {"JAVA_HOME": str(Path(java()).parents[1])} if self._paths() else {}

    def _paths(self) -> list[str]:
        from tests.servers.downloads import artifact

        folders = [artifact("-".join(jar.split(":")[1:]), f"{jar}:jar") for jar in self.jars]
        return [str(path) for folder in folders for path in folder.glob("*.jar")]


def _done(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
