"""PostgreSQL → Iceberg: all tables of a database and every change of them, through one slot, exactly once.

Run it with ``python -m examples.postgres_database_to_iceberg HOST PORT DATABASE USER PASSWORD [FOLDER]``: it reads what
the server has, then stops. Start it again, and it goes on where it stopped, also with tables and columns that are new.
"""

from __future__ import annotations

import sys
from pathlib import Path

from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, Job, PostgresSource, Upsert


def pipeline(host: str, port: int, database: str, user: str, password: str, folder: Path) -> Job:
    """Each table ``schema.name`` into the table ``schema.name`` of the lake; the role must be a superuser."""
    tables = PostgresSource(
        host=host,
        port=port,
        database=database,
        user=user,
        password=password,
        slot_name=f"volley_{database}",
        publication="volley_all",
        on_rewrite="reload",
        bounded=True,
    )
    config = IcebergSinkConfig(namespace="public", table="{table}", storage=IcebergStorage.Local(str(folder / "lake")))
    mirrored = config.with_commit_mode(Upsert()).with_schema_evolution("full")
    return (
        Environment(checkpoint_dir=str(folder / "checkpoints"))
        .from_source(tables)
        .to_sink(IcebergSink(mirrored).routed("{namespace}.{table}", rows="rows"))
        .execute("database")
    )


def main(host: str, port: str, database: str, user: str, password: str, folder: str = ".volley/database") -> None:
    seen = pipeline(host, int(port), database, user, password, Path(folder)).progress
    print(f"{seen.epochs} epochs")


if __name__ == "__main__":
    main(*sys.argv[1:])
