"""Functions that put values together to structs and lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from volley.columns.compiled import CompiledExpression, Datum, Lowering, any_fails, as_array, to_type
from volley.columns.operand_types import operand_type
from volley.plan.expression_nodes import Call, Literal

__all__ = ["LOWERED"]


def _struct(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    names = [name.value for name in node.args[::2] if isinstance(name, Literal)]
    values = args[1::2]
    out = pa.struct([pa.field(name, value.type) for name, value in zip(names, values, strict=True)])

    def evaluate(batch: pa.RecordBatch) -> Datum:
        columns = [as_array(value.evaluate(batch), batch.num_rows) for value in values]
        return pa.StructArray.from_arrays(columns, fields=[*out])

    return CompiledExpression(out, evaluate, any_fails(values))


def _list(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    items = operand_type(node, [arg.type for arg in args])
    values = [to_type(arg, items) for arg in args]

    def evaluate(batch: pa.RecordBatch) -> Datum:
        count, rows = len(values), batch.num_rows
        columns = pa.concat_arrays([as_array(value(batch), rows) for value in values])
        offsets = pa.array(np.arange(rows + 1) * count, pa.int32())
        return pa.ListArray.from_arrays(offsets, columns.take(np.arange(rows * count).reshape(count, rows).T.ravel()))

    return CompiledExpression(pa.list_(items), evaluate, any_fails(args))


LOWERED: dict[str, Lowering] = {"struct": _struct, "array": _list}
