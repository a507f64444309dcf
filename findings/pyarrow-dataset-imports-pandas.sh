#!/usr/bin/env bash
# pyarrow 26.0.1: `import pyarrow.dataset` imports pandas where it is installed, which takes three times as long itself.
#
# `import pyarrow`, `pyarrow.compute`, `pyarrow.csv` and `pyarrow.parquet` leave pandas out until a conversion needs it.
# pyarrow.dataset does not, and pyiceberg's io.pyarrow imports that: so each program that reads tables does.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1 pandas==2.3.3
"$folder/venv/bin/python" - <<'PYTHON'
import subprocess
import sys

MODULES = ("pyarrow", "pyarrow.compute", "pyarrow.csv", "pyarrow.parquet", "pyarrow.dataset")
seen = {
    module: subprocess.check_output(
        [sys.executable, "-c", f"import sys, {module}; print('pandas' in sys.modules)"], text=True
    ).strip()
    for module in MODULES
}
for module, loaded in seen.items():
    print(f"import {module}: pandas loaded: {loaded}")
assert seen == dict(zip(MODULES, ("False", "False", "False", "False", "True"), strict=True)), "the behaviour has changed"
PYTHON
