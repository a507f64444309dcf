#!/usr/bin/env bash
# pyarrow 26.0.1: round of a decimal that needs one more digit gives 0, unless it is the last value of the array.
#
# 999.5 in decimal(4, 1), rounded to whole numbers, is 1000.0, which the type can't hold. As the last value it raises
# ArrowInvalid; before another value it becomes 0.0 without an error. ceil behaves alike.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

kind = pa.decimal128(4, 1)
first = pa.array([Decimal("999.5"), Decimal("1.5")], kind)
last = pa.array([Decimal("1.5"), Decimal("999.5")], kind)
for function in (pc.round, pc.ceil):
    rounded = function(first).to_pylist()
    print(function.__name__, "999.5 first:", rounded)
    assert rounded == [Decimal("0.0"), Decimal("2.0")], "the behaviour has changed"
    try:
        raised = f"no error: {function(last).to_pylist()}"
    except pa.ArrowInvalid as error:
        raised = "ArrowInvalid"
        print(function.__name__, "999.5 last:", error)
    assert raised == "ArrowInvalid", raised
PYTHON
