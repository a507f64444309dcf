"""Makes the description that an index shows of the README, and addresses of the one in setup.cfg."""

import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

_ROOT = Path(__file__).parent
_LINK = re.compile(r"(!?)\[([^\]]+)\]\((?!https?:)([^)]*)\)")


def _absolute(host: str, version: str) -> str:
    """Return the README with links that lead to its version's files; without a host, its text alone."""

    def link(match: re.Match[str]) -> str:
        picture, text, target = match.groups()
        if not host:
            return "" if picture else text
        return f"{picture}[{text}]({host}/{'raw' if picture else 'blob'}/v{version}/{target})"

    return _LINK.sub(link, (_ROOT / "README.md").read_text(encoding="utf-8"))


def _addresses(host: str) -> dict[str, str]:
    """Return what an index lists beside the description."""
    parts = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md"}
    return {"Source": host, "Issues": f"{host}/issues", **{k: f"{host}/blob/main/{v}" for k, v in parts.items()}}


_settings = ConfigParser()
_settings.read(_ROOT / "setup.cfg", encoding="utf-8")
_host = _settings.get("metadata", "url", fallback="").rstrip("/")
(_version,) = re.findall(r'^__version__ = "(.*)"', (_ROOT / "volley" / "__init__.py").read_text(encoding="utf-8"), re.M)
setup(
    long_description=_absolute(_host, _version),
    long_description_content_type="text/markdown",
    project_urls=_addresses(_host) if _host else {},
)
