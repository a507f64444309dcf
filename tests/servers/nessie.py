"""Nessie, whose tokens come from Keycloak, an authorization server of its own, and whose files lie in moto's S3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import requests

from tests.servers.downloads import artifact, java_21
from tests.servers.glue import MotoServer
from tests.servers.process import ServerProcess, answers, free_ports

_KEYCLOAK = "org.keycloak:keycloak-quarkus-dist:26.4.5:zip"
_NESSIE = "org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner"


class Nessie:
    """Nessie with a branch ``dev``, Keycloak before it.

    Args:
        folder: Where their logs are.
        storage: The S3 server.
    """

    key = "svcid"
    secret = "svcsecret"
    hasty = "hasty"
    """Another client, with the same secret, whose tokens live for a second."""

    def __init__(self, folder: Path, storage: MotoServer) -> None:
        keycloak, nessie, management = free_ports(3)
        self.keycloak = f"http://127.0.0.1:{keycloak}"
        self.uri = f"http://127.0.0.1:{nessie}/iceberg"
        self.s3 = storage.uri
        self._keycloak = self._keycloak_process(folder, keycloak)
        jar = next(artifact("nessie-0.99.0", _NESSIE).glob("*.jar"))
        settings = {**self._settings(), "quarkus.http.port": nessie, "quarkus.management.port": management}
        options = ["-Xmx512m", "-XX:+UseSerialGC", *(f"-D{name}={value}" for name, value in settings.items())]
        self._nessie = ServerProcess("Nessie", [java_21(), *options, "-jar", str(jar)], folder / "nessie.log")

    @property
    def tokens(self) -> str:
        """Where Keycloak gives tokens."""
        return f"{self.keycloak}/realms/iceberg/protocol/openid-connect/token"

    def _keycloak_process(self, folder: Path, port: int) -> ServerProcess:
        home = next(artifact("keycloak-26.4.5", _KEYCLOAK).glob("keycloak-*"))
        realm = home / "data" / "import" / "iceberg.json"
        realm.parent.mkdir(parents=True, exist_ok=True)
        realm.write_text(json.dumps(_realm(self.secret, {self.key: 3600, self.hasty: 1})))
        options = ["--import-realm", "--db=dev-mem", "--cache=local", "--http-host=127.0.0.1", f"--http-port={port}"]
        # Unpacked by Maven, the script is not executable.
        command = ["bash", str(home / "bin" / "kc.sh"), "start-dev", *options]
        java_home = str(Path(java_21()).parents[1])
        # What the tests tell Spark's Java contradicts what Keycloak tells its own.
        environment = {"JAVA_HOME": java_home, "JAVA_OPTS_KC_HEAP": "-Xms64m -Xmx512m", "JAVA_TOOL_OPTIONS": None}
        return ServerProcess("Keycloak", command, folder / "keycloak.log", environment)

    def _settings(self) -> dict[str, Any]:
        s3 = "nessie.catalog.service.s3.default-options"
        return {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.management.host": "127.0.0.1",
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.catalog.default-warehouse": "warehouse",
            "nessie.catalog.warehouses.warehouse.location": "s3://warehouse/nessie/",
            f"{s3}.endpoint": self.s3,
            f"{s3}.region": "us-east-1",
            f"{s3}.path-style-access": "true",
            f"{s3}.auth-type": "STATIC",
            f"{s3}.access-key": "urn:nessie-secret:quarkus:keys",
            f"{s3}.request-signing-enabled": "false",
            "keys.name": "id",
            "keys.secret": "secret",
            "nessie.server.authentication.enabled": "true",
            "quarkus.oidc.tenant-enabled": "true",
            "quarkus.oidc.auth-server-url": f"{self.keycloak}/realms/iceberg",
            "quarkus.oidc.client-id": self.key,
            "quarkus.oidc.application-type": "service",
        }

    def start(self) -> Nessie:
        requests.put(f"{self.s3}/warehouse", timeout=30).raise_for_status()
        self._keycloak.start(answers(f"{self.keycloak}/realms/iceberg"))
        self._nessie.start(self._nessie.says("Listening on: http://127.0.0.1"))
        self._make_branch("dev")
        return self

    def _make_branch(self, name: str) -> None:
        trees = self.uri.replace("/iceberg", "/api/v2/trees")
        headers = {"Authorization": f"Bearer {self.token(self.key)}"}
        main = requests.get(f"{trees}/main", headers=headers, timeout=30).json()["reference"]
        made = requests.post(f"{trees}?name={name}&type=BRANCH", json=main, headers=headers, timeout=30)
        made.raise_for_status()

    def token(self, client: str) -> str:
        """A token, as Keycloak gives it for the right secret."""
        form = {"grant_type": "client_credentials", "client_id": client, "client_secret": self.secret}
        answer = requests.post(self.tokens, data={**form, "scope": "catalog"}, timeout=30)
        answer.raise_for_status()
        return str(answer.json()["access_token"])

    def stop(self) -> None:
        self._nessie.stop()
        self._keycloak.stop()


def _realm(secret: str, clients: dict[str, int]) -> dict[str, Any]:
    """A realm with clients, whose tokens live for so many seconds, and the scope that pyiceberg asks for."""
    subject = {
        "name": "sub",
        "protocol": "openid-connect",
        "protocolMapper": "oidc-sub-mapper",
        "config": {"access.token.claim": "true", "introspection.token.claim": "true"},
    }
    # Naming a scope replaces Keycloak's own, the one with the subject too.
    scope = {
        "name": "catalog",
        "protocol": "openid-connect",
        "attributes": {"include.in.token.scope": "true"},
        "protocolMappers": [subject],
    }
    made = [_client(name, secret, seconds) for name, seconds in clients.items()]
    return {"realm": "iceberg", "enabled": True, "sslRequired": "none", "clientScopes": [scope], "clients": made}


def _client(name: str, secret: str, seconds: int) -> dict[str, Any]:
    return {
        "clientId": name,
        "secret": secret,
        "enabled": True,
        "protocol": "openid-connect",
        "publicClient": False,
        "clientAuthenticatorType": "client-secret",
        "serviceAccountsEnabled": True,
        "standardFlowEnabled": False,
        "directAccessGrantsEnabled": False,
        "optionalClientScopes": ["catalog"],
        "attributes": {"access.token.lifespan": str(seconds)},
    }
