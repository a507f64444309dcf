#!/usr/bin/env bash
# pyiceberg 0.12.0, requests 2.34.2: ssl.cabundle of a REST catalog is ignored where REQUESTS_CA_BUNDLE is set.
#
# A setting of one catalog should beat the environment's. pyiceberg makes the bundle the session's `verify`, and requests
# prefers REQUESTS_CA_BUNDLE to that one. So a catalog whose certificate is of a private authority is refused, though its
# bundle is named rightly.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyiceberg==0.12.0 requests==2.34.2 trustme==1.2.1
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import os
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import requests
import trustme
from pyiceberg.catalog.rest import RestCatalog

folder = sys.argv[1]


class Config(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"defaults": {}, "overrides": {}}')

    def log_message(self, *_: object) -> None:
        pass


def authority(name: str) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(f"{folder}/{name}.pem")
    return made


private, other = authority("private"), authority("other")
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
private.issue_cert("localhost").configure_cert(context)
server = HTTPServer(("localhost", 0), Config)
server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()


def opened(environment: str | None) -> str:
    os.environ.pop("REQUESTS_CA_BUNDLE", None)
    if environment:
        os.environ["REQUESTS_CA_BUNDLE"] = f"{folder}/{environment}.pem"
    try:
        RestCatalog("c", uri=f"https://localhost:{server.server_port}", ssl={"cabundle": f"{folder}/private.pem"})
    except requests.exceptions.SSLError:
        return "SSLError"
    return "opened"


os.environ["no_proxy"] = "localhost"
os.environ.pop("CURL_CA_BUNDLE", None)
seen = {environment: opened(environment) for environment in (None, "private", "other")}
for environment, result in seen.items():
    print(f"cabundle private, REQUESTS_CA_BUNDLE {environment or 'not set'}: {result}")
assert seen == {None: "opened", "private": "opened", "other": "SSLError"}, "the behaviour has changed"
PYTHON
