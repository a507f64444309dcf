"""A file of pipelines as YAML that shows no secrets."""

from __future__ import annotations

from typing import Any

import yaml

from volley.documents.mistakes import Path, is_secret
from volley.documents.references import is_reference
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
    if isinstance(value, dict):
        return {key: _shown(document, inner, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shown(document, inner, (*path, number)) for number, inner in enumerate(value)]
    text = document.references.get(path, value)
    if is_secret(path) and not (isinstance(text, str) and is_reference(text)):
        return MASK
    return redact_uri(text) if isinstance(text, str) else text
