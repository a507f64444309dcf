#!/usr/bin/env bash
# pyarrow 26.0.1: a gzip file that is padded with zero bytes can't be read, and for one zero the error says that the stream is truncated.
#
# Tapes and block devices pad with zeros; gzip(1) and Python's gzip ignore them behind the last member. pyarrow reads several
# members, but takes the zeros for one more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import gzip
import io
import subprocess

import pyarrow as pa

DATA = gzip.compress(b"rows\n") * 2


def by_pyarrow(data: bytes) -> str:
    try:
        return repr(pa.CompressedInputStream(io.BytesIO(data), "gzip").read())
    except OSError as error:
        return str(error)


def by_others(data: bytes) -> set[bytes]:
    return {gzip.decompress(data), subprocess.run(["gzip", "-dc"], input=data, stdout=subprocess.PIPE).stdout}


seen = {zeros: by_pyarrow(DATA + bytes(zeros)) for zeros in (0, 1, 512)}
for zeros, answer in seen.items():
    print(f"{zeros} zeros: pyarrow: {answer}; gzip and Python: {by_others(DATA + bytes(zeros))}")
    assert by_others(DATA + bytes(zeros)) == {b"rows\nrows\n"}
assert seen[0] == "b'rows\\nrows\\n'", "the behaviour has changed"
assert "runcated compressed stream" in seen[1], "the behaviour has changed"
assert "unknown compression method" in seen[512], "the behaviour has changed"
PYTHON
