#!/usr/bin/env bash
# pyiceberg 0.12.0 with pyiceberg-core 0.10.1: a nanosecond timestamp before 1970 has two buckets.
#
# The specification hashes such timestamps by their microseconds. pyiceberg, which computes the value of a filter, rounds
# down; pyiceberg-core, which computes the columns that a write is partitioned by, rounds towards zero. After 1970, and for
# whole microseconds, both agree. pyiceberg-core has no hours of such timestamps. (0.12.0 doesn't yet write tables of format
# version 3, which have the type.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyiceberg==0.12.0 pyiceberg-core==0.10.1 pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import pyarrow as pa
from pyiceberg.transforms import BucketTransform, HourTransform
from pyiceberg.types import TimestampNanoType

bucket, nanoseconds = BucketTransform(100), TimestampNanoType()
values = [-1, -1000, -1001, 1, 1001]
by_row = [bucket.transform(nanoseconds)(value) for value in values]
by_column = bucket.pyarrow_transform(nanoseconds)(pa.array(values, pa.timestamp("ns"))).to_pylist()
for value, *buckets in zip(values, by_row, by_column, strict=True):
    print(f"{value} ns: bucket {buckets[0]} in pyiceberg, {buckets[1]} in pyiceberg-core")
assert by_row == [12, 12, 21, 76, 56] and by_column == [76, 12, 12, 76, 56], "the behaviour has changed"

print("-1 ns: hour", HourTransform().transform(nanoseconds)(-1), "in pyiceberg")
try:
    HourTransform().pyarrow_transform(nanoseconds)(pa.array([-1], pa.timestamp("ns")))
    raise SystemExit("pyiceberg-core has the hours now")
except ValueError as error:
    print("in pyiceberg-core:", error)
PYTHON
