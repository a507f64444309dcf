"""Checks the URIs of catalogs."""

from __future__ import annotations

import re

from volley.errors import ConfigError
from volley.secrets import redact_uri

__all__ = ["check_port", "check_uri"]


def check_uri(uri: object, *schemes: str) -> None:
    """Check the beginning of a URI, and that its user and password are escaped.

    Raises:
        ConfigError: If the URI starts with none of the schemes, or has a space or a second @.
    """
    if not isinstance(uri, str) or not uri.startswith(schemes):
        shown = redact_uri(uri) if isinstance(uri, str) else uri
        raise ConfigError(f"catalog uri {shown!r} is not valid", hint=f"it begins with {' or '.join(schemes)}")
    # Don't show the URI: it is unclear where its password ends, and each client decides differently.
    if re.search(r"\s", uri) or uri.partition("?")[0].count("@") > 1:
        scheme = uri.partition(":")[0]
        raise ConfigError(
            f"catalog uri {scheme}://… has a space or a second @",
            hint="escape what stands in user and password: urllib.parse.quote(password, safe='')",
        )


def check_port(uri: str) -> None:
    """Raise ConfigError if the URI's port is not a number."""
    # The host starts after the last @: an unescaped password may contain any character.
    host = uri.rpartition("@")[2] if "@" in uri else uri.partition("://")[2]
    port = re.match(r"[^/?\[\]:]*:([^/?]*)", host)
    if port and not port[1].isdigit():
        raise ConfigError(
            f"catalog uri {redact_uri(uri)!r} has a port that is no number",
            hint="postgresql://user:password@host:5432/db",
        )
