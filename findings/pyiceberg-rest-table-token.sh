#!/usr/bin/env bash
# pyiceberg 0.12.0: a table's own token is not sent with its commits, and with "noop" it is sent for all other tables.
#
# The answer to loadTable may have a token of that table in its config. A commit puts it into the headers of the whole
# session: what signs in to the catalog then overwrites it, and where nothing does, every later request has it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyiceberg==0.12.0 requests==2.34.2 pyarrow
"$folder/venv/bin/python" - <<'PYTHON'
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import SortOrder

METADATA = json.loads(new_table_metadata(Schema(), PartitionSpec(), SortOrder(), "file:///t", {}).model_dump_json())
asked: list[tuple[str, str, str | None]] = []


class Catalog(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name = self.path.partition("?")[0].rpartition("/")[2]
        asked.append((self.command, name, self.headers.get("Authorization")))
        table = {"metadata-location": "file:///m.json", "metadata": METADATA, "config": {"token": f"of-{name}"}}
        body = json.dumps({"defaults": {}, "overrides": {}} if name == "config" else table).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


os.environ["no_proxy"] = "127.0.0.1"
server = HTTPServer(("127.0.0.1", 0), Catalog)
threading.Thread(target=server.serve_forever, daemon=True).start()


def sent(**settings: object) -> list[tuple[str, str, str | None]]:
    catalog = RestCatalog("c", uri=f"http://127.0.0.1:{server.server_port}", **settings)
    asked.clear()
    with catalog.load_table("db.a").transaction() as transaction:
        transaction.set_properties(x="1")
    catalog.load_table("db.b")
    return list(asked)


seen = {"token": sent(token="ours"), "noop": sent(auth={"type": "noop"})}
for how, requests in seen.items():
    print(f"{how}: {requests}")
loaded, committed, other = (("GET", "a"), ("POST", "a"), ("GET", "b"))
assert seen == {
    "token": [(*loaded, "Bearer ours"), (*committed, "Bearer ours"), (*other, "Bearer ours")],
    "noop": [(*loaded, None), (*committed, "Bearer of-a"), (*other, "Bearer of-a")],
}, "the behaviour has changed"
PYTHON
