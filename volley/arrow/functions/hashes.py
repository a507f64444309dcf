"""Hashes of texts and binary values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from volley.arrow.compiled import CompiledExpression, Datum, Lowering, all_null, misfit, to_type
from volley.plan.expression_nodes import Call

__all__ = ["LOWERED"]


def _hash(function: Callable[[bytes], Any]) -> Lowering:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        (value,) = args
        if not (pa.types.is_string(value.type) or pa.types.is_binary(value.type) or all_null(value)):
            raise misfit(node, [value.type], "a string or binary")
        operand = to_type(value, pa.binary())

        def evaluate(batch: pa.RecordBatch) -> Datum:
            values = operand(batch)
            if isinstance(values, pa.Scalar):
                return pa.scalar(_digits(values.as_py()), pa.string())
            # Equal values are hashed once.
            encoded = values.dictionary_encode()
            digits = pa.array(map(_digits, encoded.dictionary.to_pylist()), pa.string())
            return digits.take(encoded.indices)

        return CompiledExpression(pa.string(), evaluate, value.can_fail)

    def _digits(value: bytes | None) -> str | None:
        return None if value is None else str(function(value).hexdigest())

    return lower


LOWERED: dict[str, Lowering] = {"md5": _hash(hashlib.md5), "sha256": _hash(hashlib.sha256)}
"""The lowering of each function."""
