#!/usr/bin/env bash
# The first hour: from an installed volley to a bad row on the page, a mended pipeline, and the row in its table.
# Needs `pip install "volley-stream[cli,jre]"`, and runs in a new folder: first_hour.sh FOLDER
set -euo pipefail

folder=${1:?first_hour.sh FOLDER}

echo "== a first project, with one bad order among the good ones"
volley init "$folder"
cd "$folder"
echo '{"id": 5, "item": "cup", "price": "8,50", "amount": 2, "at": "2026-11-02T12:00:00Z"}' > orders/2.json
sed -i.bak -e 's/bounded: true /bounded: false/' -e 's/^    sink: lake$/&\n    dead_letter: bad_orders/' volley.yaml
volley check

echo "== it runs, and serves its page"
volley run --ui > run.log 2>&1 &
job=$!
trap 'kill "$job" 2> /dev/null || true' EXIT
until page=$(grep -o 'http://[^ ]*' run.log | head -n 1) && [ -n "$page" ]; do
    kill -0 "$job"
    sleep 0.2
done
echo "page: $page"

echo "== the bad order is on it"
python - "${page%/}/status.json" <<'PYTHON'
import json
import sys
import time
from urllib.request import urlopen

for _ in range(600):
    (job,) = json.load(urlopen(sys.argv[1]))["jobs"]
    if job["letters"]:
        break
    time.sleep(0.2)
(letter,) = job["letters"]
print(letter["payload"])
print("column", letter["column"], "|", letter["error"])
PYTHON
kill "$job"
wait "$job"

echo "== the pipeline is mended: a price may be a text with a comma"
sed -i.bak \
    -e 's/price double/price string/' \
    -e "s/^      - with_columns: .*/      - with_columns: {price: \"cast(replace(price, ',', '.') as double)\"}\n&/" volley.yaml
volley replay orders

echo "== and the order is in the table"
python <<'PYTHON'
from volley import load_config

for row in load_config("volley.yaml").sinks["lake"].to_arrow().sort_by("id").to_pylist():
    print(row["id"], row["item"], row["total"])
PYTHON
