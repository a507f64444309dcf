"""Reads properties of tables that are numbers."""

from __future__ import annotations

from collections.abc import Mapping

from volley.errors import ConfigError

__all__ = ["number_in"]


def number_in(properties: Mapping[str, str], name: str, least: int = 1) -> int | None:
    """Return a property that is a whole number, of this size at least; None if the table does not have it.

    Raises:
        ConfigError: If its value is another one.

    Example:
        >>> number_in({"write.target-file-size-bytes": "1048576"}, "write.target-file-size-bytes")
        1048576
    """
    text = properties.get(name)
    if text is None or (text.isdecimal() and int(text) >= least):
        return text if text is None else int(text)
    raise ConfigError(f"table property {name} is {text!r}", hint=f"a whole number, {least} or more")
