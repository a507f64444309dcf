"""The JSON Schema of files of pipelines, as an editor applies it."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema

from volley.config.json_schema import json_schema

__all__ = ["validator"]


@cache
def validator() -> Any:
    """Checks documents; the schema itself is checked once, which costs a third of a second."""
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)
