#!/usr/bin/env bash
# pyiceberg 0.12.0: a REST catalog takes any body of a 200 as "the namespace is made".
#
# The answer to a new namespace is JSON that repeats its name. create_namespace looks at the status only: a gateway that
# answers with a page of its own, such as a form to sign in, makes it return without an error, and nothing is made.
# list_namespaces reads the answer and raises.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyiceberg==0.12.0
"$folder/venv/bin/python" - <<'PYTHON'
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from pydantic import ValidationError
from pyiceberg.catalog.rest import RestCatalog


class SignIn(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.end_headers()
        config = b'{"defaults": {}, "overrides": {}}'
        self.wfile.write(config if self.path.startswith("/v1/config") else b"<html>Sign in</html>")

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


os.environ["no_proxy"] = "localhost"
server = HTTPServer(("localhost", 0), SignIn)
threading.Thread(target=server.serve_forever, daemon=True).start()
catalog = RestCatalog("c", uri=f"http://localhost:{server.server_port}")
made = catalog.create_namespace("db")
print("create_namespace returns", made)
try:
    listed = f"no error: {catalog.list_namespaces()}"
except ValidationError:
    listed = "ValidationError"
print("list_namespaces:", listed)
assert made is None, "the behaviour has changed"
assert listed == "ValidationError", "the behaviour has changed"
PYTHON
