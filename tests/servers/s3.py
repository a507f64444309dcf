"""SeaweedFS with users of its own, temporary keys, and a REST catalog that vends such keys for each table."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.config import Config
from botocore.session import get_session

from tests.servers.seaweed import Seaweed, SeaweedProcess
from tests.services.fault_proxy import Answer, FaultProxy, Request
from volley import IcebergStorage

REGION = "us-east-1"
BUCKET = "plain"
ROLE = "arn:aws:iam::role/Writer"


@dataclass(frozen=True)
class Keys:
    """Keys of S3."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None


ADMIN = Keys("svcid", "svcsecret")
READER = Keys("readerid", "readersecret")

_USERS = {
    "identities": [
        {
            "name": "admin",
            "credentials": [{"accessKey": ADMIN.access_key_id, "secretKey": ADMIN.secret_access_key}],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": READER.access_key_id, "secretKey": READER.secret_access_key}],
            "actions": ["Read", "List"],
        },
    ]
}
_ANYTHING = {"Effect": "Allow", "Action": ["s3:*", "s3tables:*"], "Resource": ["*"]}
_TRUST = [
    {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole"]},
    {"Effect": "Allow", "Principal": {"Federated": "iceberg-catalog"}, "Action": ["sts:AssumeRoleWithCredentials"]},
]
_ROLES = {
    "sts": {
        "tokenDuration": "1h",
        "maxSessionLength": "12h",
        "issuer": "seaweedfs-sts",
        "signingKey": "dGVzdC1zaWduaW5nLWtleS0zMi1jaGFyYWN0ZXJzLWxvbmc=",
    },
    "policy": {"defaultEffect": "Deny", "storeType": "memory"},
    "policies": [{"name": "Anything", "document": {"Version": "2012-10-17", "Statement": [_ANYTHING]}}],
    "roles": [
        {
            "roleName": "Writer",
            "roleArn": ROLE,
            "attachedPolicies": ["Anything"],
            "trustPolicy": {"Version": "2012-10-17", "Statement": _TRUST},
        }
    ],
}


class S3(SeaweedProcess):
    """The server, with a proxy before its S3 port: that is the address it gives to clients."""

    proxy: LastKeysOnly

    @property
    def endpoint(self) -> str:
        """Where clients reach S3: the proxy."""
        return self.proxy.uri

    def start(self) -> Seaweed:
        """Start it, and make the bucket if it is not there from an earlier start."""
        server, client = super().start(), self._client("s3")
        # After a restart it answers before it knows where its objects are, and where new ones go.
        if BUCKET in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
            client.get_object(Bucket=BUCKET, Key="ready")
        else:
            client.create_bucket(Bucket=BUCKET)
        client.put_object(Bucket=BUCKET, Key="ready", Body=b"yes")
        return server

    def stop(self) -> None:
        super().stop()
        self.proxy.refuse()

    def storage(self, keys: Keys | None = ADMIN, bucket: str = BUCKET, endpoint: str | None = None) -> IcebergStorage:
        where, given = endpoint or self.endpoint, vars(keys) if keys else {}
        return IcebergStorage.S3(region=REGION, bucket=bucket, endpoint=where, path_style_access=True, **given)

    def temporary_keys(self) -> Keys:
        """Keys that are good for an hour, with the session token that belongs to them."""
        given = self._client("sts").assume_role(RoleArn=ROLE, RoleSessionName="volley")["Credentials"]
        return Keys(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])

    def _client(self, service: str) -> Any:
        keys = {"aws_access_key_id": ADMIN.access_key_id, "aws_secret_access_key": ADMIN.secret_access_key}
        patient = Config(retries={"mode": "standard", "max_attempts": 10})
        return get_session().create_client(
            service, REGION, endpoint_url=self.server.s3_endpoint, config=patient, **keys
        )

    def _more_options(self, folder: Path) -> dict[str, object]:
        self.proxy = LastKeysOnly(self.server.s3_endpoint)
        (folder / "users.json").write_text(json.dumps(_USERS))
        (folder / "roles.json").write_text(json.dumps(_ROLES))
        return {
            "s3.config": folder / "users.json",
            "s3.iam.config": folder / "roles.json",
            "s3.autoCreateBucket": "false",
            "s3.externalUrl": self.endpoint,
            "s3.iceberg.credentialRole": ROLE,
        }


class LastKeysOnly(FaultProxy):
    """Before S3: once it is told of keys that a catalog has vended, those vended before have expired.

    So have those whose end, of `ends`, has passed.
    """

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.valid: str | None = None
        self.ends: dict[str, float] = {}
        self.used: list[str] = []
        self.refused: list[str] = []

    def exchange(self, request: Request) -> Answer | None:
        token = next((value for name, value in request.headers.items() if name.lower() == "x-amz-security-token"), "")
        has_expired = time.time() > self.ends.get(token, math.inf)
        if has_expired or (self.valid is not None and token != self.valid):
            self.refused.append(f"{request.method} {request.path}")
            text = "<?xml version='1.0'?><Error><Code>ExpiredToken</Code><Message>it has expired</Message></Error>"
            # As AWS answers.
            return Answer(400, {"Content-Type": "application/xml"}, text.encode())
        if token and token not in self.used:
            self.used.append(token)
        return super().exchange(request)
