"""``python -m tests.chaos``: one campaign; status 1 if a row was lost, doubled or changed, or a run failed."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from pyspark import SparkContext
from rich.console import Console
from rich.table import Table

from tests.chaos import (
    captured,
    changelog,
    database,
    debezium,
    erased,
    joined,
    maintained,
    mariadb,
    mirror,
    routed,
    together,
    viewed,
    webhooks,
)
from tests.chaos.campaign import Verdict, chaos
from tests.chaos.kinds import KINDS
from tests.classes import java_options
from tests.drivers import Drivers, start_jvm
from tests.servers.iceberg_spark import IcebergSpark
from tests.servers.rest_fixture import RestFixture
from tests.servers.shared import own_server
from tests.services import lakes

# The seconds that a run which catches up may take, also beside other work.
_RUN_SECONDS = 900
_MIRROR, _MAINTENANCE, _VIEW, _CAPTURE, _ROUTED = "mirror", "maintenance", "view", "capture", "routed"
_WEBHOOKS, _JOIN, _DATABASE, _CHANGELOG, _MARIADB = "webhooks", "join", "database", "changelog", "mariadb"
_TOGETHER, _ERASURE = "together", "erasure"
_DEBEZIUM = {f"debezium_{name}": name for name in debezium.KINDS}


def main(arguments: list[str]) -> None:
    """Kill, compare, print one column for each kind of job."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None, help="repeats a schedule; by default another one each time")
    every = (
        *(*KINDS, _MIRROR, _MAINTENANCE, _VIEW, _CAPTURE, _CHANGELOG, _ROUTED, _WEBHOOKS, _JOIN, _DATABASE),
        *(_MARIADB, *_DEBEZIUM, _TOGETHER, _ERASURE),
    )
    parser.add_argument("--kinds", nargs="+", choices=every, default=every, help="of jobs; by default all")
    options = parser.parse_args(arguments)
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    os.environ.setdefault("JAVA_TOOL_OPTIONS", java_options())
    print(f"chaos: seed {seed}, {options.kills} kills, about {options.kills // 7 + 1} minutes", flush=True)
    folder, began = Path(tempfile.mkdtemp(prefix="volley-chaos-")), time.monotonic()
    print(f"chaos: the lake and the logs are in {folder} until all is well", flush=True)
    kinds = tuple(kind for kind in options.kinds if kind in KINDS)
    verdicts = chaos(Drivers(), folder, seed, options.kills, kinds) if kinds else []
    if verdicts:
        Console(width=None if sys.stdout.isatty() else 200).print(_table(verdicts))
        # The last runs of these kinds are of this process, with a session of their own.
        if (context := SparkContext._active_spark_context) is not None:
            context.stop()
    if _MIRROR in options.kinds:
        kills = options.kills // 3 if kinds else options.kills
        with start_jvm() as jvm:
            compared = mirror.run(Drivers(jvm, _RUN_SECONDS), folder / _MIRROR, kills, seed)
        print(f"chaos: a table that is upserted and its copy, {kills} kills: equal in {compared} comparisons")
    if _MAINTENANCE in options.kinds:
        kills = options.kills // 3 if kinds else options.kills
        (folder / "iceberg-spark").mkdir()
        with own_server(IcebergSpark(folder / "iceberg-spark")) as iceberg_spark:
            for version, share in {"2": kills // 2, "3": kills - kills // 2}.items():
                where = folder / _MAINTENANCE / version
                died = maintained.run(iceberg_spark, where, share, seed, version=version)
                print(
                    f"chaos: a table of format {version} that is upserted and maintained, no row lost, doubled or "
                    f"changed after {dict(died)}"
                )
    if _ERASURE in options.kinds:
        kills = options.kills // 6 if kinds else options.kills
        for version, share in {"2": kills // 2, "3": kills - kills // 2}.items():
            died = erased.run(folder / _ERASURE / version, share, seed, version)
            print(f"chaos: a table of format {version}, no byte of an erased row is left after {dict(died)}")
    if _VIEW in options.kinds:
        died = viewed.run(folder / _VIEW, options.kills // 3 if kinds else options.kills, seed)
        print(f"chaos: a view of a table that changes, equal to DuckDB's result after each of {dict(died)}")
    if _CAPTURE in options.kinds:
        kills = options.kills // 3 if kinds else options.kills
        with start_jvm() as jvm:
            deaths, changes = captured.run(Drivers(jvm, _RUN_SECONDS), folder / _CAPTURE, kills, seed)
        print(f"chaos: a table of PostgreSQL and its mirror are equal after {changes:,} changes and {dict(deaths)}")
    if _CHANGELOG in options.kinds:
        kills = options.kills // 6 if kinds else options.kills
        with start_jvm() as jvm:
            deaths, changes = changelog.run(Drivers(jvm, _RUN_SECONDS), folder / _CHANGELOG, kills, seed)
        print(f"chaos: a changelog of PostgreSQL, each event follows, of {changes:,} changes and {dict(deaths)}")
    if _DATABASE in options.kinds:
        kills = options.kills // 6 if kinds else options.kills
        with start_jvm() as jvm:
            deaths, changes = database.run(Drivers(jvm, _RUN_SECONDS), folder / _DATABASE, kills, seed)
        print(f"chaos: a database of PostgreSQL, no table differs after {changes:,} changes and {dict(deaths)}")
    if _MARIADB in options.kinds:
        kills = options.kills // 6 if kinds else options.kills
        with start_jvm() as jvm:
            outcome = mariadb.run(Drivers(jvm, _RUN_SECONDS), folder / _MARIADB, kills, seed)
        print(f"chaos: a database of MariaDB, no table differs: {outcome}")
    for kind in (kind for kind in _DEBEZIUM if kind in options.kinds):
        kills = options.kills // 6 if kinds else options.kills
        with start_jvm() as jvm:
            ended = debezium.run(Drivers(jvm, _RUN_SECONDS), folder / kind, kills, seed, _DEBEZIUM[kind])
        print(f"chaos: Debezium, {_DEBEZIUM[kind]}, no row and no version differs: {ended}")
    if _ROUTED in options.kinds:
        kills = options.kills // 3 if kinds else options.kills
        with start_jvm() as jvm:
            died = routed.run(Drivers(jvm, _RUN_SECONDS), folder / _ROUTED, kills, seed)
        print(f"chaos: many tables, made, widened, dropped and put back, no table differs after {dict(died)}")
    if _TOGETHER in options.kinds:
        kills = options.kills // 6 if kinds else options.kills
        (folder / "rest-fixture").mkdir()
        with own_server(RestFixture(folder / "rest-fixture")) as server, start_jvm() as jvm:
            drivers, lake = Drivers(jvm, _RUN_SECONDS), lakes.on_rest(server)
            died = together.run(drivers, folder / _TOGETHER, lake, kills, seed)
        print(f"chaos: many tables in one commit, no epoch in a part of them, no table differs after {dict(died)}")
    if _WEBHOOKS in options.kinds:
        kills = options.kills // 3 if kinds else options.kills
        with start_jvm() as jvm:
            deaths, requests, repeated = webhooks.run(Drivers(jvm, _RUN_SECONDS), folder / _WEBHOOKS, kills, seed)
        print(
            f"chaos: webhooks, {requests:,} requests acknowledged ({repeated:,} times sent again), "
            f"none lost, doubled or changed after {dict(deaths)}"
        )
    if _JOIN in options.kinds:
        with start_jvm() as jvm:
            died = joined.run(
                Drivers(jvm, _RUN_SECONDS), folder / _JOIN, options.kills // 3 if kinds else options.kills, seed
            )
        print(f"chaos: a table that is joined and changes, both sinks as the epochs' snapshots say after {dict(died)}")
    print(f"chaos: {time.monotonic() - began:,.0f} seconds")
    if not all(verdict.clean for verdict in verdicts):
        sys.exit("chaos: failed")
    shutil.rmtree(folder)


def _table(verdicts: list[Verdict]) -> Table:
    """A row for each thing that happened, a column for each kind of job."""
    table = Table("what", *(verdict.kind for verdict in verdicts), "all", title="chaos")

    def row(what: str, counts: list[int]) -> None:
        table.add_row(what, *(f"{count:,}" for count in (*counts, sum(counts))))

    for what in sorted({what for verdict in verdicts for what in verdict.happened}):
        row(what, [verdict.happened.get(what, 0) for verdict in verdicts])
    for what in ("kills", "faults", "runs", "failed", "epochs", "orphans"):
        row(what, [getattr(verdict, what) for verdict in verdicts])
    for what in ("expected", "found", "lost", "doubled", "changed"):
        row(f"rows {what}", [getattr(verdict.rows, what) for verdict in verdicts])
    return table


if __name__ == "__main__":
    main(sys.argv[1:])
