"""Azurite: Azure Blob Storage that checks keys and, over TLS, the tokens of Azure's identity chain."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ssl
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

from tests.servers.certificates import Certificate
from tests.servers.downloads import npm_package
from tests.servers.process import ServerProcess, free_ports, listens, needed
from volley import IcebergStorage

VERSION = "3.35.0"
ACCOUNT = "devstoreaccount1"
# Public: every Azurite in the world has it.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONTAINER = "lake"


class Azurite:
    """An Azurite server, of HTTPS if it is given a certificate: then it also takes bearer tokens.

    Args:
        folder: Where it keeps its data and its log.
        certificate: Its certificate.
    """

    def __init__(self, folder: Path, certificate: Certificate | None = None) -> None:
        node, package = needed("node", "it comes with Node.js"), npm_package("azurite", VERSION)
        (port,) = free_ports(1)
        scheme = "https" if certificate else "http"
        self.certificate = certificate
        self.host = f"127.0.0.1:{port}/{ACCOUNT}"
        self.endpoint = f"{scheme}://{self.host}"
        secure = [f"--cert={certificate.file}", f"--key={certificate.key_file}", "--oauth=basic"] if certificate else []
        program = package / "dist" / "src" / "blob" / "main.js"
        options = [f"--blobPort={port}", "--blobHost=127.0.0.1", f"--location={folder}", "--disableTelemetry"]
        command = [node, str(program), *options, "--silent", "--skipApiVersionCheck", *secure]
        self._process = ServerProcess("Azurite", command, folder / "log")
        self._ready = listens(port)

    def start(self) -> None:
        """Start it, and make the container."""
        self._process.start(self._ready)
        request = urllib.request.Request(f"{self.endpoint}/{CONTAINER}?restype=container", method="PUT")
        _sign(request, f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container")
        trusted = ssl.create_default_context(cafile=self.certificate.file) if self.certificate else None
        urllib.request.urlopen(request, timeout=10, context=trusted).close()

    def stop(self) -> None:
        self._process.stop()

    def storage(self, access_key: str | None = KEY, container: str = CONTAINER) -> IcebergStorage:
        return IcebergStorage.Azure(storage_account=ACCOUNT, container=container, access_key=access_key)

    def properties(self) -> dict[str, str]:
        """What tells clients that the account is not in Azure."""
        return {"adls.account-host": self.host}


def connection_string(endpoint: str, key: str = KEY) -> str:
    """How clients are told of an account that is reached over plain HTTP."""
    return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={endpoint};"


def _sign(request: urllib.request.Request, resource: str) -> None:
    """Azure's shared key signature for a request without a body."""
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    text = f"{request.method}{chr(10) * 12}x-ms-date:{date}\nx-ms-version:2021-12-02\n{resource}"
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    request.add_header("x-ms-date", date)
    request.add_header("x-ms-version", "2021-12-02")
    request.add_header("Authorization", f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}")
