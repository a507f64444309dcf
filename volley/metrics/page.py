"""The page of jobs: one HTML file that needs nothing else, and shows what ``/status.json`` and ``/events`` tell."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

__all__ = ["PAGE", "PAGE_HEADERS"]

PAGE = files("volley.metrics").joinpath("page.html").read_bytes()
"""The file."""


def _digest(tag: str) -> str:
    match = re.search(rf"<{tag}>(.*?)</{tag}>".encode(), PAGE, re.DOTALL)
    assert match is not None
    return f"'sha256-{base64.b64encode(hashlib.sha256(match[1]).digest()).decode()}'"


PAGE_HEADERS = [
    ("Cache-Control", "no-cache"),
    # Only its own script and style, and only this server: the page shows texts that come with the data.
    (
        "Content-Security-Policy",
        f"default-src 'none'; script-src {_digest('script')}; style-src {_digest('style')}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
]
"""What a browser is told about it."""
