"""A file of pipelines as YAML that shows no secrets."""

from __future__ import annotations

from typing import Any

import yaml

from volley.documents.mistakes import Path, is_secret
from volley.documents.yaml_text import Document
from volley.secrets import MASK, redact_uri

__all__ = ["shown"]


def shown(document: Document) -> str:
    """Return a document as YAML: with references instead of their values, and secrets masked.

    Example:
        >>> from volley.documents.references import References
        >>> from volley.documents.yaml_text import parse
        >>> text = "{host: '${HOST:-db}', password: hunter2}"
        >>> print(shown(parse(text, "a.yaml", References({}))), end="")
        host: ${HOST:-db}
        password: '***'
    """
    text: str = yaml.safe_dump(_shown(document, document.value, ()), sort_keys=False, allow_unicode=True, width=120)
    return text


def _shown(document: Document, value: Any, path: Path) -> Any:
    if path in document.references:
        return document.references[path]
    if isinstance(value, dict):
        return {key: _shown(document, inner, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shown(document, inner, (*path, number)) for number, inner in enumerate(value)]
    if path and is_secret(path[-1]):
        return MASK
    return redact_uri(value) if isinstance(value, str) else value
