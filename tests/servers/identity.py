"""The token endpoints that clouds' credential chains ask, as small HTTP servers that record who asked."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.servers.certificates import private_key

TOKEN = "ya29.token-of-the-service-account"


class TokenEndpoint:
    """Answers every request with what `make` makes of its query or form.

    Args:
        make: The answer's JSON for the parameters of a request.
    """

    def __init__(self, make: Callable[[dict[str, str]], dict[str, Any]]) -> None:
        self.asked: list[dict[str, str]] = []
        self.status = 200
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, make))
        self.uri = f"http://127.0.0.1:{self._server.server_address[1]}/token"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> TokenEndpoint:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(endpoint: TokenEndpoint, make: Callable[[dict[str, str]], dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            asked = {name: values[0] for name, values in parse_qs(form or urlsplit(self.path).query).items()}
            endpoint.asked.append({**asked, "header": self.headers.get("X-IDENTITY-HEADER", "")})
            self._tell(json.dumps(make(asked)).encode())

        do_POST = do_GET

        def _tell(self, body: bytes) -> None:
            self.send_response(endpoint.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """The record is `TokenEndpoint.asked`."""

    return Handler


def azure_identity() -> TokenEndpoint:
    """The managed identity of a machine in Azure: tokens of the kind that Azurite takes."""
    return TokenEndpoint(_azure_token)


def _azure_token(asked: dict[str, str]) -> dict[str, Any]:
    token, end = azure_token(3600)
    return {"access_token": token, "expires_on": str(end), "token_type": "Bearer", "resource": asked["resource"]}


def azure_token(seconds: int) -> tuple[str, int]:
    """A token for Azure's storage, and when it ends."""
    now = int(time.time())
    claims = {
        "aud": "https://storage.azure.com",
        "iss": "https://sts.windows.net/ab1f708d-50f6-404c-a006-d71b2ac7a606/",
        "iat": now - 60,
        "nbf": now - 60,
        "exp": now + seconds,
        "oid": "23657296-5cd5-45b0-a809-d972a7f4dfe1",
        "tid": "dd0d0df1-06c3-436c-8034-4b9a153097ce",
    }
    return ".".join([_encoded({"alg": "RS256", "typ": "JWT"}), _encoded(claims), "signature"]), now + seconds


def _encoded(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def google_tokens() -> TokenEndpoint:
    """Google's token service, which exchanges a service account's signed assertion for a token."""
    return TokenEndpoint(lambda asked: {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})


def service_account_key(token_uri: str) -> str:
    """The JSON text of a service account's key, whose tokens come from `token_uri`."""
    _, key = private_key()
    account = {
        "type": "service_account",
        "project_id": "test",
        "private_key_id": "1",
        "private_key": key.decode(),
        "client_email": "writer@test.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": token_uri,
    }
    return json.dumps(account)
