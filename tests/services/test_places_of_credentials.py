"""Credentials that a catalog gives for several places: each file is written, read and deleted with those of its own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from tests.recovery.lake import write
from tests.servers.s3 import BUCKET, S3, Keys
from tests.services.documented import documented
from tests.services.fault_proxy import Answer, Fault, FaultProxy, Request, Server, answer_as_s3, named
from tests.services.lakes import driver
from volley.iceberg import IcebergTable, SnapshotManager


def settings_of(keys: Keys) -> dict[str, str]:
    values = (keys.access_key_id, keys.secret_access_key, str(keys.session_token))
    return dict(zip(("s3.access-key-id", "s3.secret-access-key", "s3.session-token"), values, strict=True))


def with_places(places: dict[str, Keys], endpoint: str) -> Fault:
    """The catalog's answer has credentials for each place, and none for all."""

    def placed(server: Server) -> Answer:
        answer = server()
        if answer.status != 200:
            return answer
        body = json.loads(answer.body)
        body["config"] = {
            name: value for name, value in body.get("config", {}).items() if name not in settings_of(keys)
        }
        body["config"]["s3.endpoint"] = endpoint
        body["storage-credentials"] = [
            {"prefix": prefix, "config": settings_of(given)} for prefix, given in places.items()
        ]
        return Answer(answer.status, answer.headers, json.dumps(body).encode())

    keys = next(iter(places.values()))
    return named("with places", placed)


class ByBucket(FaultProxy):
    """Before S3: a bucket is reached with the keys that are for it alone."""

    def __init__(self, upstream: str, tokens: dict[str, str]) -> None:
        super().__init__(upstream)
        self.tokens = tokens
        self.refused: list[str] = []
        self.served: set[tuple[str, str]] = set()

    def exchange(self, request: Request) -> Answer | None:
        bucket = request.path.split("/")[1].partition("?")[0]
        token = next((value for name, value in request.headers.items() if name.lower() == "x-amz-security-token"), "")
        if token != self.tokens[bucket]:
            self.refused.append(f"{request.method} {request.path}")
            return answer_as_s3(403, "AccessDenied")(lambda: Answer(500))
        self.served.add((bucket, request.method))
        return super().exchange(request)


def test_data_files_in_another_bucket(s3_server: S3, everywhere: Callable[[str, str], None]) -> None:
    everywhere("AWS_EC2_METADATA_DISABLED", "true")
    metadata, data = s3_server.temporary_keys(), s3_server.temporary_keys()
    assert metadata.session_token != data.session_token
    tokens = {"lake": str(metadata.session_token), BUCKET: str(data.session_token)}
    table = f"t{uuid.uuid4().hex}"
    s3 = ByBucket(s3_server.server.s3_endpoint, tokens)
    with FaultProxy(s3_server.server.rest_uri) as catalog, s3:
        given = documented("S3 with keys from the catalog", catalog=catalog.uri)
        places = with_places({"s3://": metadata, f"s3://{BUCKET}/{table}": data}, s3.uri)
        catalog.arm(places, "GET", rf"/tables/{table}", times=None)
        catalog.arm(places, "POST", r"/tables$", times=None)
        elsewhere = {"write.data.path": f"s3://{BUCKET}/{table}/data"}
        config = replace(given, table=table, storage=s3_server.storage(None, "lake", s3.uri))
        config = config.with_table_properties(elsewhere)
        ours = driver(config)
        for number in range(2):
            ours.commit(*write(ours, number, [number]))
        kept = IcebergTable(config.ref)
        assert sorted(kept.to_arrow()["id"].to_pylist()) == [0, 1]
        assert kept.compact().files_after == 1
        SnapshotManager(config.ref).expire_snapshots(older_than=timedelta(0), retain_last=1)
        assert sorted(kept.to_arrow()["id"].to_pylist()) == [0, 1]
    assert s3.refused == []
    assert {("lake", "PUT"), (BUCKET, "PUT"), (BUCKET, "GET")} <= s3.served
