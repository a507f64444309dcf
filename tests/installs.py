"""What the pages of the documents install: their lines ``pip install …``, and what their tables name."""

from __future__ import annotations

import re
import shlex
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = "volley-stream"
_SETUP = ConfigParser()
_SETUP.read(ROOT / "setup.cfg")
EXTRAS = set(_SETUP["options.extras_require"])
USUAL = f"{OURS}[jre]"
"""What the README says: it holds for each page that says nothing else."""


def installed_by(text: str) -> list[str]:
    """The requirements that a page names, each once, in order."""
    lines = re.findall(r"pip install ([^\n`&#;]+)", text)
    words = [word for line in lines for word in shlex.split(line) if not word.startswith("-")]
    words += re.findall(rf"`({OURS}\[[\w,]+\])`", text)
    return list(dict.fromkeys(re.sub(r"^(\.|/path/to/volley)(?=\[|$)", OURS, word) for word in words))
