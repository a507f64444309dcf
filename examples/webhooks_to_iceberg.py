"""Webhooks → Iceberg: what GitHub sends about a repository, each delivery once, in a table.

Run it with ``GITHUB_SECRET=… python -m examples.webhooks_to_iceberg [PORT] [FOLDER]``: it receives until Ctrl-C. In the
settings of a repository on GitHub, the webhook's content type is ``application/json``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from volley import Environment, HmacAuth, IcebergSink, IcebergSinkConfig, IcebergStorage, Job, WebhookSource, col


def pipeline(port: int, secret: str, folder: Path) -> Job:
    """Deliveries into the table ``hooks.github``; bodies that don't fit into ``hooks.github_bad``."""
    deliveries = WebhookSource(
        port,
        "/github",
        schema="action string, ref string, repository struct<full_name string>, sender struct<login string>",
        include=["key", "received_at"],
        header_columns={"event": "X-GitHub-Event"},
        on_bad="dead_letter",
        auth=HmacAuth("github", secret),
        idempotency="header:X-GitHub-Delivery",
    )
    config = IcebergSinkConfig(namespace="hooks", table="github", storage=IcebergStorage.Local(str(folder / "lake")))
    return (
        Environment(checkpoint_dir=str(folder / "checkpoints"))
        .from_source(deliveries)
        .with_column("repository", col("repository")["full_name"])
        .with_column("sender", col("sender")["login"])
        .to_sink(IcebergSink(config.with_flush_interval("1s").with_dead_letter("github_bad")))
        .execute("github")
    )


def main(port: str = "8080", folder: str = ".volley/github") -> None:
    seen = pipeline(int(port), os.environ["GITHUB_SECRET"], Path(folder)).progress
    print(f"{seen.rows} deliveries in {seen.epochs} epochs, {seen.rejected} to github_bad")


if __name__ == "__main__":
    main(*sys.argv[1:])
