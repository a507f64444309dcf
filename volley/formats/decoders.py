"""Chooses what decodes messages, by their format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from volley.formats import json
from volley.formats.change_options import CHANGES, ChangeOptions
from volley.formats.messages import Decoder, JsonValues, PlainValues
from volley.formats.number_values import NUMBERS, NumberValues
from volley.types.arrow import arrow_schema, canonical_schema

__all__ = ["decoder_of"]


def decoder_of(value_format: str, schema: object, on_unknown: str, unknown: str, options: Mapping[str, Any]) -> Decoder:
    """Return the decoder of values in JSON, text or bytes.

    Args:
        value_format: ``"json"``, ``"string"``, ``"raw"``, one of `CHANGES` or of `NUMBERS`.
        schema: The columns of JSON.
        on_unknown: What to do with JSON fields that the schema lacks.
        unknown: The column that keeps them.
        options: Those of a format of changes.

    Raises:
        ConfigError: If JSON can't be read into a column.
    """
    if value_format in NUMBERS:
        return NumberValues(value_format)
    if value_format not in ("json", *CHANGES):
        return PlainValues(text=value_format == "string")
    columns = canonical_schema(arrow_schema(schema))
    if value_format in CHANGES:
        # Slow to import.
        from volley.formats.changes.decoder import ChangeValues

        return ChangeValues(columns, value_format, ChangeOptions(**options), on_unknown)
    json.check(columns)
    return JsonValues(columns, on_unknown, unknown)
