"""A virtual environment of its own for each peer whose packages do not go together with the tests'."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.run import MissingPeerError, Result, Run

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class PeerEnvironment:
    """Packages in a virtual environment under the user's cache, made when it is first needed.

    Args:
        name: Its folder's name.
        requirements: The packages, pinned; with others the environment is made anew.
        jars: Maven's coordinates of the jars it takes, ``group:artifact:version[:classifier]``.
    """

    name: str
    requirements: tuple[str, ...]
    jars: tuple[str, ...] = ()

    def run(self, run: Run, work: Callable[[Run], None], **options: Any) -> list[Result]:
        """Run a function, at the top of its module, in this environment; return what it finds.

        Args:
            run: The run, with the rows that this peer takes.
            work: The function; its module imports no more than is installed there.
            options: What its run is told, beside ``jars``, their paths.
        """
        import pytest

        from tests.servers.downloads import java

        try:
            python, java_home = self._python(), str(Path(java()).parents[1])
            folders = [_folder(*jar.split(":")) for jar in self.jars]
        except subprocess.CalledProcessError as reason:
            raise MissingPeerError(reason.stderr.strip().splitlines()[-1]) from reason
        except (OSError, pytest.skip.Exception, pytest.fail.Exception) as reason:
            raise MissingPeerError(str(reason)) from reason
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
        environment = {**kept, "PYTHONPATH": str(_ROOT), "JAVA_HOME": java_home}
        jars = [str(path) for folder in folders for path in folder.glob("*.jar")]
        return run.apart(work, environment, python, options={**options, "jars": jars})

    def _python(self) -> str:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "volley" / "peers" / self.name
        python, listed = folder / "bin" / "python", folder / "requirements.txt"
        # `benchmarks.measure` imports psutil.
        wanted = "\n".join([*self.requirements, "psutil==7.2.2"])
        if not listed.exists() or listed.read_text() != wanted:
            run = partial(subprocess.run, check=True, capture_output=True, text=True)
            run([sys.executable, "-m", "venv", "--clear", folder])
            run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted.splitlines()])
            # Written last: an environment that was cut short is not taken for a whole one.
            listed.write_text(wanted)
        return str(python)


def _folder(group: str, name: str, version: str, *classifier: str) -> Path:
    """The folder with a jar."""
    from tests.servers.downloads import artifact

    return artifact("-".join([name, version, *classifier]), ":".join([group, name, version, "jar", *classifier]))
