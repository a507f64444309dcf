"""Chooses what decodes messages, by their format."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from volley.formats import json
from volley.formats.change_options import CHANGES, ChangeOptions
from volley.formats.contract import RESCUED, Contract, contract_of
from volley.formats.inferred import Inferred
from volley.formats.json_seen import Sight
from volley.formats.messages import Decoder, JsonValues, PlainValues
from volley.formats.number_values import NUMBERS, NumberValues
from volley.formats.options import Policy
from volley.types.arrow import arrow_schema, canonical_schema

__all__ = ["contract_values", "decoder_of", "payload_values"]


def decoder_of(
    value_format: str,
    schema: object,
    on_unknown: Policy,
    unknown: str,
    options: Mapping[str, Any],
    state: str = "",
    reserved: Collection[str] = (),
) -> Decoder:
    """Return the decoder of values in JSON, text or bytes.

    Args:
        value_format: ``"json"``, ``"string"``, ``"raw"``, one of `CHANGES` or of `NUMBERS`.
        schema: The columns of JSON.
        on_unknown: What to do with JSON fields that the schema lacks.
        unknown: The column that keeps them.
        options: Those of a format of changes.
        state: The folder below the job's checkpoint that keeps columns which are inferred; empty = none is.
        reserved: Names of columns that the source adds.

    Raises:
        ConfigError: If JSON can't be read into a column.
    """
    if value_format in NUMBERS:
        return NumberValues(value_format)
    if value_format not in ("json", *CHANGES):
        return PlainValues(text=value_format == "string")
    columns, contract = canonical_schema(arrow_schema(schema)), contract_of(on_unknown)
    if value_format in CHANGES:
        # Slow to import.
        from volley.formats.changes.decoder import ChangeValues
        from volley.formats.changes.packed import change_values

        changes = ChangeOptions(**options)
        if contract is None:
            return change_values(columns, value_format, changes, str(on_unknown))
        inferred = Inferred(state, columns, contract, [*reserved, *changes.added])
        inferred = inferred.kept() if state else inferred
        return ChangeValues(inferred.schema, value_format, changes, "drop", inferred=inferred)
    json.check(columns)
    if contract is not None:
        inferred = Inferred(state, columns, contract, [*reserved, RESCUED])
        return contract_values(inferred.kept() if state else inferred)
    return JsonValues(columns, str(on_unknown), unknown)


def payload_values(schema: pa.Schema, contract: Contract, added: Collection[str]) -> JsonValues:
    """Return what decodes payloads of dead letters by a contract: it changes no column.

    Args:
        schema: The schema of the source's rows.
        added: The columns that it adds.
    """
    columns = pa.schema([field for field in schema if field.name not in (*added, RESCUED)])
    return contract_values(Inferred("", columns, contract.fixed, [*added, RESCUED]))


def contract_values(inferred: Inferred) -> JsonValues:
    """Return the decoder of JSON by a contract."""
    return JsonValues(inferred.schema, "rescue", RESCUED, sight=Sight(inferred))
