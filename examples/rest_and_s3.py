"""A REST catalog and S3: the same pipeline as on one machine, with another config and secrets from the environment.

Run it with ``python -m examples.rest_and_s3``, with ``CATALOG`` (its address), ``WAREHOUSE``, ``CREDENTIAL``
(``id:secret``), ``BUCKET``, ``REGION``, and outside of AWS ``S3_ENDPOINT``, ``ACCESS_KEY`` and ``SECRET_KEY``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, IcebergTable, MemorySource


def config(env: Mapping[str, str]) -> IcebergSinkConfig:
    """Return the table's config. Without keys, S3 is reached by the machine's own role."""
    storage = IcebergStorage.S3(
        region=env["REGION"],
        bucket=env["BUCKET"],
        endpoint=env.get("S3_ENDPOINT"),
        path_style_access="S3_ENDPOINT" in env,
        access_key_id=env.get("ACCESS_KEY"),
        secret_access_key=env.get("SECRET_KEY"),
    )
    return IcebergSinkConfig(
        catalog_uri=env["CATALOG"], warehouse=env["WAREHOUSE"], namespace="db", table="orders", storage=storage
    ).with_credential(env["CREDENTIAL"])


def main(env: Mapping[str, str], checkpoints: str = ".volley/checkpoints") -> list[int]:
    """Write three orders; return the ids in the table."""
    orders = MemorySource([{"id": number, "price": number * 2.5} for number in range(3)])
    stream = Environment(checkpoint_dir=checkpoints).from_source(orders)
    stream.to_sink(IcebergSink(config(env))).execute("orders")
    ids = sorted(IcebergTable(config(env)).to_arrow()["id"].to_pylist())
    print(ids)
    return ids


if __name__ == "__main__":
    main(os.environ)
