"""Settings in environment variables: ``PREFIX_CATALOG__REST__URI`` is the ``uri`` of ``rest`` of ``catalog``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from volley.documents.mistakes import error_of
from volley.documents.references import References
from volley.documents.yaml_text import parse

__all__ = ["settings_in"]


def settings_in(variables: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """Return the settings in the variables whose names begin with a prefix.

    Two underscores lead into a setting. A value in brackets or braces is a list or a mapping in YAML.

    Args:
        variables: The environment variables.

    Raises:
        ConfigError: If a value in brackets or braces is not YAML.

    Example:
        >>> settings_in({"LAKE_TABLE": "events", "LAKE_LOCAL__PATH": "lake", "LAKE_KEY_FIELDS": "[id, day]"}, "LAKE_")
        {'table': 'events', 'local': {'path': 'lake'}, 'key_fields': ['id', 'day']}
    """
    settings: dict[str, Any] = {}
    for name, text in variables.items():
        if not name.startswith(prefix):
            continue
        *outer, last = name.removeprefix(prefix).lower().split("__")
        inside = settings
        for key in outer:
            inside = inside.setdefault(key, {})
        inside[last] = _value(name, text)
    return settings


def _value(name: str, text: str) -> Any:
    if not text.lstrip().startswith(("[", "{")):
        return text
    # A $ in it is not a reference: the shell has replaced those.
    document = parse(text.replace("$", "$$"), name, References({}))
    if document.mistakes:
        raise error_of(name, document.mistakes)
    return document.value
