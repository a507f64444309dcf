"""Chaos of several tables in one commit: routed tables, a log, a branch and dead letters; drivers die, gateways lie."""

from __future__ import annotations

import json
import os
import random
import signal
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.chaos.mirror import next_epoch
from tests.chaos.routed import Model
from tests.drivers import Drivers
from tests.services.fault_proxy import LIES, Answer, FaultProxy, Server, kill
from tests.services.lakes import Lake
from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, Job, col, lit
from volley.iceberg import RestCatalog, Upsert
from volley.task.failpoints import EXECUTOR_TASK_POINT, POINTS, TASK_POINTS

__all__ = ["run", "write"]

_TASK_POINTS = (*TASK_POINTS, EXECUTOR_TASK_POINT)
_TOGETHER, _ALONE = "/transactions/commit", r"/tables/[^/]+$"
_ASKED, _ANSWERED = "before a request", "after a request"
# Half of the deaths are at a request: the first of a commit's many loads, or the commit itself.
_DEATHS = (*POINTS, *_TASK_POINTS, *(_ASKED, _ANSWERED) * (len(POINTS + _TASK_POINTS) // 2))
_LOADS = 40
_LOG, _AUDITED, _LETTERS = "log", "audited", "letters"
_BRANCH = "audit"
_OF_A_RIVAL = "rival"


def write(folder: Path, config: IcebergSinkConfig) -> Job:
    """Write the rows of each file to the tables that they name, and each packet to a log and a branch."""
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    packets = environment.from_source(FileSource(folder / "in", format="parquet", max_files_per_epoch=1))
    many = replace(config, table="{name}").with_commit_mode(Upsert(["id"], order_by="seq", op_field="op"))
    log = replace(config, table=_LOG).with_dead_letter(f"{config.ref.identifier[0]}.{_LETTERS}")
    audited = replace(config, table=_AUDITED).with_branch(_BRANCH)
    return environment.execute(
        "together",
        packets.to_sink(IcebergSink(many).routed(rows="rows", key_fields="primary_key")),
        # A name of three characters, as t12, is a bad row there.
        packets.with_column("length", lit(6) / (col("name").str.length() - 3)).to_sink(IcebergSink(log)),
        packets.to_sink(IcebergSink(audited)),
    )


@dataclass
class _Tables:
    """The tables as another client sees them, and what they must have by the files that the job reads."""

    folder: Path
    catalog: Catalog
    namespace: str
    model: Model

    def load(self, name: str) -> Table | None:
        full = f"{self.namespace}.{name}"
        return self.catalog.load_table(full) if self.catalog.table_exists(full) else None

    def due(self) -> dict[str, list[int]]:
        """The epochs that each table must have, by its name."""
        due: dict[str, list[int]] = {name: [] for name in (*self.model.rows, _LOG, _AUDITED, _LETTERS)}
        for number, packets in enumerate(self.packets()):
            names = {packet["name"] for packet in packets}
            targets = {_LETTERS if len(name) == 3 else _LOG for name in names}
            for name in (*names, *targets, _AUDITED):
                due[name].append(number)
        return due

    def packets(self) -> list[list[dict[str, Any]]]:
        return [pq.read_table(path).to_pylist() for path in sorted((self.folder / "in").glob("*.parquet"))]

    def torn(self) -> dict[str, list[int]]:
        """The tables that lack an epoch that another one has, or have one twice, with their epochs."""
        found = {name: self._epochs(name) for name in self.due()}
        last = max((epochs[-1] for epochs in found.values() if epochs), default=-1)
        due = {name: [epoch for epoch in epochs if epoch <= last] for name, epochs in self.due().items()}
        return {name: epochs for name, epochs in found.items() if epochs != due[name]}

    def _epochs(self, name: str) -> list[int]:
        table = self.load(name)
        summaries = [snapshot.summary for snapshot in table.snapshots()] if table is not None else []
        epochs = [summary["volley.epoch"] for summary in summaries if summary]
        return [int(epoch) for epoch in epochs if epoch is not None]

    def differing(self, rivals: int) -> list[str]:
        """The tables whose rows differ."""
        packets = [packet for packets in self.packets() for packet in packets]
        long = [packet for packet in packets if len(packet["name"]) == 3]
        log = [*(packet for packet in packets if packet not in long), *[{"name": _OF_A_RIVAL, "rows": b""}] * rivals]
        letters = [json.loads(row["payload"])["name"] for row in self._rows(_LETTERS)]
        found = {
            _LOG: _same(self._rows(_LOG), log),
            _AUDITED: _same(self._rows(_AUDITED, _BRANCH), packets) and not self._rows(_AUDITED),
            _LETTERS: sorted(letters) == sorted(packet["name"] for packet in long),
        }
        differing = self.model.differing(self.catalog, self.namespace)
        return [*differing, *(name for name, is_same in found.items() if not is_same)]

    def _rows(self, name: str, branch: str = "main") -> list[dict[str, Any]]:
        table = self.load(name)
        if table is None or (table.current_snapshot() is None and branch == "main"):
            return []
        return list(table.scan().use_ref(branch).to_arrow().to_pylist())


def _same(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    return Counter(map(_packet, rows)) == Counter(map(_packet, expected))


def _packet(row: dict[str, Any]) -> tuple[str, bytes]:
    return row["name"], row["rows"]


@dataclass
class _Gateway:
    """Lies to the job, lets another writer commit first, and kills the driver at a request."""

    proxy: FaultProxy
    tables: _Tables
    dice: random.Random
    rivals: int = 0
    _pid: int = 0

    def lie(self) -> None:
        """Two commits of the next run meet a lie each, or another writer."""
        for fault in self.dice.choices([*LIES, *[self.rival] * 10], k=2):
            self.proxy.arm(fault, "POST", _TOGETHER, skip=self.dice.randrange(2))

    def rival(self, server: Server) -> Answer:
        """A fault: another writer appends to a table while it is committed."""
        table = self.tables.load(_LOG)
        if table is not None:
            row = {"name": _OF_A_RIVAL, "rows": b"", "length": None}
            table.append(pa.Table.from_pylist([row], table.schema().as_arrow()))
            self.rivals += 1
        return server()

    def run(self, drivers: Drivers, folder: Path, config: IcebergSinkConfig, point: str) -> int:
        """Run the job, which is to die at a point; return its exit code."""
        armed, epoch = "", next_epoch(folder, "together")
        if point in (_ASKED, _ANSWERED):
            method, path, passed = self.dice.choice([("POST", _TOGETHER, 2), ("GET", ".*", _LOADS)])
            death = self.die if point == _ASKED else kill(lambda: self._pid)
            self.proxy.arm(death, method, path, skip=self.dice.randrange(passed))
        else:
            armed = f"{point}@{epoch},{point}@{epoch + 1}"
        driver = drivers.start(write, folder, config, failpoint=armed, kill_driver=point in _TASK_POINTS)
        self._pid = driver.pid or 0
        try:
            return drivers.wait(driver)
        finally:
            self.proxy.disarm()

    def die(self, server: Server) -> None:
        """A fault: the driver dies before the catalog hears of the request."""
        os.kill(self._pid, signal.SIGKILL)


def run(
    drivers: Drivers, folder: Path, lake: Lake, kills: int, seed: int, check_every: int = 10, **model: int
) -> Counter[str]:
    """Kill the job until it has died so often; return where, and how often a gateway lied and another writer was first.

    After each death no table lacks an epoch that another one has, and none has one twice.

    Args:
        drivers: Run the job.
        folder: An empty folder.
        lake: A catalog that takes several tables in one commit.
        kills: How often a driver dies.
        seed: Repeats the schedule.
        check_every: After so many deaths the job runs to its end, and all rows of all tables are compared.
        model: How many tables and columns there are.

    Raises:
        AssertionError: If a table differs, or an epoch is in a part of the tables.
    """
    dice, died, catalog = random.Random(seed), Counter[str](), lake.documented.ref.catalog
    assert isinstance(catalog, RestCatalog)
    input, namespace = Model(folder, dice, **({"tables": 12, "made": 6, "columns": 20} | model)), f"n{uuid.uuid4().hex}"
    tables = _Tables(folder, lake.open_plain(), namespace, input)
    with FaultProxy(catalog.uri) as proxy:
        behind = replace(catalog, uri=proxy.uri + urlsplit(catalog.uri).path, timeout=5.0)
        plain = replace(lake.documented, catalog_uri=None, credential=None, catalog=behind)
        config, gateway = replace(plain, namespace=[namespace]), _Gateway(proxy, tables, dice)
        input.feed()
        assert drivers.run(write, folder, config) == 0
        while died.total() < kills:
            input.feed()
            input.feed()
            gateway.lie()
            point = dice.choice(_DEATHS)
            status = gateway.run(drivers, folder, config, point)
            assert status in (0, -signal.SIGKILL), f"a run that was to die at {point} ended with status {status}"
            assert tables.torn() == {}, point
            died[point] += status != 0
            if status != 0 and (died.total() % check_every == 0 or died.total() == kills):
                assert drivers.run(write, folder, config) == 0
                assert tables.torn() == {}
                differing = tables.differing(gateway.rivals)
                print(f"chaos: {died.total()} kills, {len(input.rows)} tables, differ: {differing}", flush=True)
                assert differing == []
        met = [exchange.fault for exchange in proxy.asked("POST", _TOGETHER) if exchange.fault]
        # The branch of an empty table is made by commits of its own.
        assert {exchange.path.rpartition("/")[2] for exchange in proxy.asked("POST", _ALONE)} <= {_AUDITED}
    return +died + Counter({"other writers": gateway.rivals, "lies": len(met) - gateway.rivals})
