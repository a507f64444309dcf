"""Catalogs that can't be had here, as fronts of a server that can: their paths, sign-in, headers, answers and refusals.

Recorded, not run against the service: each contract names what it was taken from. A front refuses what its vendor would
refuse, keeps the reason in `broken`, and passes the rest on to Iceberg's REST fixture.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

from tests.services.fault_proxy import Answer, FaultProxy, Request

__all__ = ["KEY", "PROBES", "SECRET", "VENDORS", "Front", "Vendor", "properties_in"]

KEY, SECRET = "AKIDEXAMPLE", "canary-secret"

PROBES = "github.com/xbill9/lakehouse-iceberg-2026, requests sent to each service on 2026-09-03, with their answers"

_TABLES = "/v1/{prefix}/namespaces/{namespace}/tables"
_READS = [
    *("GET /v1/{prefix}/namespaces", "GET /v1/{prefix}/namespaces/{namespace}"),
    *("HEAD /v1/{prefix}/namespaces/{namespace}", f"GET {_TABLES}", f"GET {_TABLES}/{{table}}"),
    *(f"HEAD {_TABLES}/{{table}}", f"POST {_TABLES}/{{table}}/metrics"),
]
_WRITES = [
    *("POST /v1/{prefix}/namespaces", f"POST {_TABLES}", f"POST {_TABLES}/{{table}}"),
    *(f"DELETE {_TABLES}/{{table}}", "DELETE /v1/{prefix}/namespaces/{namespace}"),
]
_POLARIS = [
    *_READS,
    *_WRITES,
    *("POST /v1/{prefix}/namespaces/{namespace}/properties", "POST /v1/{prefix}/tables/rename"),
    *("POST /v1/{prefix}/namespaces/{namespace}/register", "POST /v1/{prefix}/transactions/commit"),
    # Not of Iceberg's protocol, one of them without a slash at its beginning.
    "GET polaris/v1/{prefix}/namespaces/{namespace}/generic-tables",
    "PUT /polaris/v1/{prefix}/namespaces/{namespace}/policies/{policy-name}",
]


@dataclass(frozen=True)
class Vendor:
    """What is known of a vendor's service.

    Args:
        source: What it was taken from: document or program, version, date.
        base: The path before ``/v1``.
        warehouse: What the request for the settings names.
        prefix: What the answer gives for the paths of all other requests.
        tokens: The path of the token endpoint; None = the front gives none.
        form: What a request for a token has, besides id and secret.
        token: The answer to it, besides the token.
        service: The service and region that AWS' signatures are for.
        headers: What each request of the protocol has to have.
        endpoints: What is announced; None = nothing.
        settings: The ``defaults`` and ``overrides`` of the settings, besides the prefix.
        more: What else the answer with the settings has.
        has_levels: False: a namespace of several parts is refused.
        absent: The requests that are answered as if there were no such path, as a regex of method and path.
        prohibited: The table properties that are refused when a table is made or changed, as a regex.
        properties: What is told of table properties: by whom, when; empty if nothing was found.
    """

    source: str
    base: str
    warehouse: str | None
    prefix: str
    tokens: str | None = None
    form: Mapping[str, str] = field(default_factory=dict)
    token: Mapping[str, Any] = field(default_factory=dict)
    service: tuple[str, str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    endpoints: list[str] | None = None
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)
    has_levels: bool = True
    absent: str | None = None
    prohibited: str | None = None
    properties: str = ""


_KEYCLOAK = {"expires_in": 300, "refresh_expires_in": 0, "token_type": "Bearer", "not-before-policy": 0}

VENDORS: Mapping[str, Vendor] = {
    "polaris": Vendor(
        f"Apache Polaris 1.7.0: {PROBES}; IcebergRestConfigEndpoints.java",
        base="/api/catalog",
        warehouse="lake",
        prefix="lake",
        tokens="/api/catalog/v1/oauth/tokens",
        form={"grant_type": "client_credentials", "scope": "PRINCIPAL_ROLE:ALL"},
        token={
            "token_type": "bearer",
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "expires_in": 3600,
        },
        headers={"polaris-realm": "POLARIS"},
        endpoints=_POLARIS,
        settings={
            "defaults": {"default-base-location": "file:///lake"},
            "overrides": {"namespace-separator": "%1F"},
        },
    ),
    "snowflake_open_catalog": Vendor(
        f"docs.snowflake.com, Open Catalog, November 2026; {PROBES} (Horizon, which has the same path)",
        base="/polaris/api/catalog",
        warehouse="lake",
        prefix="lake",
        tokens="/polaris/api/catalog/v1/oauth/tokens",
        form={"grant_type": "client_credentials", "scope": "PRINCIPAL_ROLE:writer"},
        token={"token_type": "bearer", "expires_in": 3600},
        endpoints=[endpoint for endpoint in _POLARIS if "polaris/" not in endpoint],
        properties="most are kept as written, those that stand for settings of Snowflake change these: "
        "docs.snowflake.com/user-guide/tables-iceberg-table-properties, November 2026",
    ),
    "gravitino": Vendor(
        "gravitino.apache.org/docs/1.1.0/iceberg-rest-service: no commits of several tables, no pages",
        base="/iceberg",
        warehouse="lake",
        prefix="lake",
        tokens="/realms/lake/token",
        form={"grant_type": "client_credentials", "scope": "gravitino"},
        token=_KEYCLOAK,
        endpoints=[*_READS, *_WRITES],
        absent=r"POST .*/transactions/commit",
    ),
    "lakekeeper": Vendor(
        "docs.lakekeeper.io, 0.13.3, August 2026: tokens of an identity provider, projects, idempotency, %1F",
        base="/catalog",
        warehouse="lake",
        prefix="019b0c5e-7d2f-7a31-9e52-1f6d0a3b4c5d",
        tokens="/realms/lake/token",
        form={"grant_type": "client_credentials", "scope": "lakekeeper"},
        token=_KEYCLOAK,
        headers={"x-project-id": "019b0c5e-0000-7000-8000-000000000001"},
        endpoints=[*_READS, *_WRITES, "POST /v1/{prefix}/transactions/commit"],
        more={"idempotency-key-lifetime": "PT30M"},
    ),
    "unity": Vendor(
        "unitycatalog/unitycatalog, IcebergRestCatalogService.java, November 2026, with tables of Iceberg enabled",
        base="/api/2.1/unity-catalog/iceberg",
        warehouse="main",
        prefix="catalogs/main",
        tokens="/oidc/token",
        form={"grant_type": "client_credentials"},
        token={"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"},
        endpoints=[*_READS, *_WRITES[:4]],
        has_levels=False,
        properties="all are kept, when a table is made and changed: unitycatalog/unitycatalog at 00f872f1, "
        "IcebergRestCatalogService.java",
    ),
    "databricks": Vendor(
        f"docs.databricks.com/external-access/iceberg, November 2026; {PROBES}",
        base="/api/2.1/unity-catalog/iceberg-rest",
        warehouse="main",
        prefix="catalogs/main",
        tokens="/oidc/v1/token",
        form={"grant_type": "client_credentials", "scope": "all-apis"},
        token={"scope": "all-apis", "token_type": "Bearer", "expires_in": 3600},
        endpoints=[*_READS, *_WRITES],
        has_levels=False,
        prohibited=r"write\.object-storage\.enabled|write\.parquet\..*",
        properties="`write.object-storage.enabled` and `write.parquet.…` are refused when a table is made, and "
        "the first can't be removed: github.com/pola-rs/polars/issues/27453, 2026-04-30, with the service's answer",
    ),
    "s3_tables": Vendor(
        f"docs.aws.amazon.com/AmazonS3/latest/userguide/s3-tables-integrating-open-source.html; {PROBES}",
        base="/iceberg",
        warehouse="arn:aws:s3tables:eu-central-1:123456789012:bucket/lake",
        prefix="arn%3Aaws%3As3tables%3Aeu-central-1%3A123456789012%3Abucket%2Flake",
        service=("s3tables", "eu-central-1"),
        has_levels=False,
        properties="any are taken when a table is made: github.com/hashicorp/terraform-provider-aws/pull/48635, "
        "2026-06-25, run against the service",
    ),
    "biglake": Vendor(
        f"docs.cloud.google.com/lakehouse/docs/lakehouse-iceberg-rest-catalog, November 2026; {PROBES}",
        base="/iceberg/v1/restcatalog",
        warehouse="gs://lake",
        prefix="projects/my-project/catalogs/lake",
        headers={"x-goog-user-project": "my-project"},
        endpoints=[*_READS, *_WRITES, f"GET {_TABLES}/{{table}}/credentials"],
        settings={"defaults": {"snapshot-loading-mode": "refs", "table-defaults.format-version": "2"}},
        absent=r"POST .*/(transactions/commit|tables/rename)|.*/views",
    ),
    "onelake": Vendor(
        f"learn.microsoft.com/fabric/onelake/table-apis, November 2026; {PROBES}: announces changes, serves none",
        base="/iceberg",
        warehouse="workspace/lake.Lakehouse",
        prefix="workspace/lake.Lakehouse",
        endpoints=[*_READS, *_WRITES],
        has_levels=False,
        absent=r"POST .*/(namespaces|tables|tables/[^/]+)$",
    ),
}


class Front(FaultProxy):
    """A vendor's service before Iceberg's REST fixture.

    Args:
        vendor: What is known of the service.
        upstream: The fixture; None = there is no table, nor anything else.
        bearer: The token that requests have, if the front's token endpoint does not give it.

    Its `signed` has method, path and ``Authorization`` of each request, `forms` the requests for tokens, `given` the
    tokens that are good; `status` is that of the answer to those who have none of them; `keys` has each request that
    changed something, by its idempotency key, and the answer, which is given again.
    """

    def __init__(self, vendor: Vendor, upstream: str | None = None, bearer: str | None = None) -> None:
        super().__init__(upstream or "http://127.0.0.1:9")
        self.vendor = vendor
        self.given: list[str] = [] if bearer is None else [bearer]
        self.broken: list[str] = []
        self.signed: list[tuple[str, str, str]] = []
        self.forms: list[dict[str, str]] = []
        self.status = 401
        self.keys: dict[str, tuple[Request, Answer | None]] = {}
        self._is_alone = upstream is None

    def exchange(self, request: Request) -> Answer | None:
        path = request.path.partition("?")[0]
        if path == self.vendor.tokens:
            return self._token(request)
        reason = self._refused(request)
        if reason is not None:
            self.broken.append(f"{request.method} {request.path}: {reason}")
            return _error(self.status if reason.startswith("sign-in") else 400, "BadRequestException", reason)
        if path == f"{self.vendor.base}/v1/config":
            return self._settings(request)
        there = path.removeprefix(f"{self.vendor.base}/v1/{self.vendor.prefix}/")
        return self._known(request, there) or self._served(request, there)

    def _known(self, request: Request, path: str) -> Answer | None:
        """The answer that a request with this key had before, if it did not fail in the server; keeps new ones."""
        key = {name.lower(): value for name, value in request.headers.items()}.get("idempotency-key")
        is_change = request.method in ("POST", "DELETE") and not path.endswith("/metrics")
        wants = is_change and "idempotency-key-lifetime" in self.vendor.more
        if wants != (key is not None) or (key is not None and uuid.UUID(key).version != 7):
            self.broken.append(f"{request.method} {request.path}: idempotency key {key}")
        if key is None:
            return None
        known, answer = self.keys.get(key, (request, None))
        if (known.method, known.path, known.body) != (request.method, request.path, request.body):
            self.broken.append(f"{request.method} {request.path}: the key of another request")
        if answer is not None:
            return answer
        answer = self._served(request, path)
        self.keys[key] = request, answer if answer is not None and answer.status < 500 else None
        return answer

    def _refused(self, request: Request) -> str | None:
        """Why a vendor refuses a request, for its path or headers."""
        vendor, path = self.vendor, request.path.partition("?")[0]
        headers = {name.lower(): value for name, value in request.headers.items()}
        if not path.startswith((f"{vendor.base}/v1/{vendor.prefix}/", f"{vendor.base}/v1/config")):
            return f"no such path: {path}"
        wanted = {"x-iceberg-access-delegation": "vended-credentials", **vendor.headers}
        for name, value in wanted.items():
            if headers.get(name) != value:
                return f"{name} is {headers.get(name)!r}, not {value!r}"
        authorization = headers.get("authorization", "")
        self.signed.append((request.method, path, authorization))
        if vendor.service is not None:
            return _badly_signed(request, *vendor.service)
        return None if authorization.removeprefix("Bearer ") in self.given else f"sign-in by {authorization!r}"

    def _token(self, request: Request) -> Answer:
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        client = {"client_id": KEY, "client_secret": SECRET}
        wanted = {**self.vendor.form, **(client if form.get("grant_type") == "client_credentials" else {})}
        self.forms.append(form)
        if {name: form.get(name) for name in wanted} != wanted or request.method != "POST":
            said = {"error": "invalid_client", "error_description": "The client is not known"}
            return _json(401, said)
        self.given.append(f"token-{len(self.forms)}")
        return _json(200, {"access_token": self.given[-1], **self.vendor.token})

    def _settings(self, request: Request) -> Answer:
        asked = dict(parse_qsl(urlsplit(request.path).query)).get("warehouse")
        if asked != self.vendor.warehouse:
            self.broken.append(f"warehouse {asked!r}")
            return _error(404, "NotFoundException", f"there is no warehouse {asked!r}")
        settings = {name: dict(self.vendor.settings.get(name, {})) for name in ("defaults", "overrides")}
        settings["overrides"]["prefix"] = self.vendor.prefix
        announced = {} if self.vendor.endpoints is None else {"endpoints": self.vendor.endpoints}
        return _json(200, {**settings, **announced, **self.vendor.more})

    def _served(self, request: Request, path: str) -> Answer | None:
        """Pass a request on, or answer as the vendor does where it differs."""
        vendor = self.vendor
        if vendor.absent is not None and re.fullmatch(vendor.absent, f"{request.method} /{path}"):
            return _error(404, "NotFoundException", "Requested Api is not found")
        if not vendor.has_levels and _has_levels(path, request.body):
            return _error(400, "BadRequestException", "Multipart namespaces are not supported")
        names = properties_in(request) if vendor.prohibited is not None else []
        if any(re.fullmatch(str(vendor.prohibited), name) for name in names):
            return _error(400, "BadRequestException", "Malformed request: Table properties contain prohibited keys")
        if self._is_alone:
            return _error(404, "NoSuchTableException", "there is nothing here")
        query = request.path.partition("?")[2]
        # The fixture has another separator of namespaces' parts.
        there = "/v1/" + path.replace("%1F", "%2E") + (f"?{query}" if query else "")
        kept = {name: value for name, value in request.headers.items() if name.lower() != "authorization"}
        return super().exchange(replace(request, path=there, headers=kept))


def properties_in(request: Request) -> list[str]:
    """The names of the table properties that a request sets."""
    if request.method != "POST" or not re.search(r"/tables(/[^/]+)?$", request.path):
        return []
    body = json.loads(request.body or b"{}")
    updates = (each for each in body.get("updates", []) if each["action"] == "set-properties")
    return [*body.get("properties", {}), *(name for update in updates for name in update["updates"])]


def _has_levels(path: str, body: bytes) -> bool:
    if path == "namespaces" and body:
        return len(json.loads(body)["namespace"]) > 1
    return "\x1f" in unquote(path)


def _badly_signed(request: Request, service: str, region: str) -> str | None:
    """Why AWS would refuse a signature; None if it is right."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    headers = {name.lower(): value for name, value in request.headers.items()}
    parts = dict(re.findall(r"(\w+)=([^,\s]+)", headers.get("authorization", "")))
    scope = parts.get("Credential", "").split("/")
    if scope[:1] + scope[2:] != [KEY, region, service, "aws4_request"]:
        return f"sign-in: signed for {scope}"
    if request.body:
        headers["content-length"] = str(len(request.body))
    signed = {name: headers[name] for name in parts["SignedHeaders"].split(";")}
    url = f"http://{headers['host']}{request.path.partition('?')[0]}"
    query = dict(parse_qsl(urlsplit(request.path).query))
    asked = AWSRequest(method=request.method, url=url, params=query, data=request.body, headers=signed)
    asked.context["timestamp"] = headers["x-amz-date"]
    auth = SigV4Auth(Credentials(KEY, SECRET), service, region)
    signature = auth.signature(auth.string_to_sign(asked, auth.canonical_request(asked)), asked)
    return None if signature == parts["Signature"] else "sign-in: the signature does not match"


def _json(status: int, content: Any) -> Answer:
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(content).encode())


def _error(status: int, kind: str, message: str) -> Answer:
    return _json(status, {"error": {"message": message, "type": kind, "code": status}})
