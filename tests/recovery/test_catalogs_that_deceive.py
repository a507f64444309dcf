"""Catalogs that hide snapshots, or report a branch or tag that is not there: no row is lost, no file is deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.recovery.lake import SCHEMA, write
from tests.recovery.remote import RemoteLake
from tests.services.fault_proxy import Answer, Fault, FaultProxy, Server, named
from tests.services.lakes import driver
from volley import (
    CatalogError,
    CommitStateUnknownError,
    ConfigError,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    Metrics,
    SinkContext,
)
from volley.iceberg import (
    IcebergSourceConfig,
    IcebergTable,
    NessieCatalog,
    RestCatalog,
    SnapshotManager,
    TableRef,
    remove_orphan_files,
)
from volley.iceberg.commit.committer import IcebergCommitter
from volley.iceberg.commit.probes import table_probes

AT_ONCE = timedelta(0)
CONFIG = "/v1/config"


def edited(edit: Callable[[dict[str, Any]], Any]) -> Fault:
    """The server does what was asked; the client gets its answer with other contents."""

    def forward_and_edit(server: Server) -> Answer:
        answer = server()
        body = json.loads(answer.body)
        edit(body)
        return Answer(answer.status, answer.headers, json.dumps(body).encode())

    return named("edited", forward_and_edit)


def only_refs(body: dict[str, Any]) -> None:
    """Keep the snapshots of references alone, as a server does that does not look at the parameter."""
    metadata = body["metadata"]
    heads = {ref["snapshot-id"] for ref in metadata["refs"].values()}
    metadata["snapshots"] = [each for each in metadata["snapshots"] if each["snapshot-id"] in heads]


def filled(remote: RemoteLake, epochs: int = 4) -> IcebergCommitter:
    driver = remote.driver()
    for number in range(epochs):
        driver.commit(*write(driver, number, [number]))
    return driver


def every_snapshot(remote: RemoteLake) -> list[list[int]]:
    """The rows of each snapshot, read by plain pyiceberg."""
    table = remote.table()
    scans = (table.scan(snapshot_id=snapshot.snapshot_id) for snapshot in table.snapshots())
    return [sorted(scan.to_arrow()["id"].to_pylist()) for scan in scans]


@pytest.fixture(params=["setting", "default", "override"])
def refs_mode(request: pytest.FixtureRequest, remote: RemoteLake, proxy: FaultProxy) -> TableRef:
    """The table with the loading mode "refs", by the user's setting or the server's."""
    mode = {"snapshot-loading-mode": "refs"}
    if request.param == "setting":
        return remote.config.with_properties(mode).ref
    place = f"{request.param}s"
    proxy.arm(edited(lambda body: body.setdefault(place, {}).update(mode)), "GET", CONFIG, times=None)
    return remote.config.ref


def test_orphans_are_told_by_all_snapshots_whatever_the_loading_mode(remote: RemoteLake, refs_mode: TableRef) -> None:
    filled(remote)
    assert remove_orphan_files(refs_mode, AT_ONCE) == []
    assert every_snapshot(remote) == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


def test_all_snapshots_are_listed_tagged_and_expired_whatever_the_mode(remote: RemoteLake, refs_mode: TableRef) -> None:
    filled(remote)
    manager = SnapshotManager(refs_mode)
    second = manager.list_snapshots()[1]
    manager.create_tag("second", second.id)
    done = manager.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    assert len(done.snapshots) == 2
    assert every_snapshot(remote) == [[0, 1], [0, 1, 2, 3]]
    assert IcebergTable(refs_mode).at("second").to_arrow()["id"].to_pylist() == [0, 1]


def test_a_stream_of_changes_sees_all_snapshots_whatever_the_mode(remote: RemoteLake, refs_mode: TableRef) -> None:
    filled(remote)
    first, *_, last = [snapshot.snapshot_id for snapshot in remote.table().snapshots()]
    changes = IcebergTable(refs_mode).changes(first, last).to_arrow()
    assert sorted(changes["id"].to_pylist()) == [1, 2, 3]


def test_a_commit_that_another_one_overtakes_whatever_the_mode(remote: RemoteLake, refs_mode: TableRef) -> None:
    """pyiceberg's own next attempt looks for the snapshot that it began with, which the mode leaves out."""
    filled(remote)
    ours = driver(remote.config.with_properties(dict(refs_mode.properties)))
    epoch, results = write(ours, 4, [4])
    for number in range(2):
        remote.table().append(pa.table({"id": [50 + number]}, schema=SCHEMA))
    ours.commit(epoch, results)
    assert remote.rows() == [0, 1, 2, 3, 4, 50, 51]


def test_nothing_is_deleted_while_the_catalog_hides_snapshots(remote: RemoteLake, proxy: FaultProxy) -> None:
    filled(remote)
    proxy.arm(edited(only_refs), "GET", remote.path, times=None)
    manager = SnapshotManager(remote.config.ref)
    with pytest.raises(CatalogError, match=r"shows 1 snapshots .* leaves out 3"):
        remove_orphan_files(remote.config.ref, AT_ONCE)
    with pytest.raises(CatalogError, match="leaves out 3"):
        remove_orphan_files(remote.config.ref, AT_ONCE, dry_run=True)
    manager.create_snapshot()
    with pytest.raises(CatalogError, match="leaves out 4"):
        manager.expire_snapshots(snapshot_ids=[], dry_run=True)
    assert len(every_snapshot(remote)) == 5


def test_no_file_is_deleted_if_the_answer_to_an_expiry_hides_snapshots(remote: RemoteLake, proxy: FaultProxy) -> None:
    filled(remote)
    oldest = remote.table().snapshots()[0].snapshot_id
    proxy.arm(edited(only_refs), "POST", remote.path, times=None)
    with pytest.raises(Exception, match=r"1 snapshots .* were expired, but none of their files was deleted"):
        SnapshotManager(remote.config.ref).expire_snapshots(snapshot_ids=[oldest])
    assert every_snapshot(remote) == [[0, 1], [0, 1, 2], [0, 1, 2, 3]]


# --- references that are reported as made, and are not there


def without_ref(name: str) -> Fault:
    return edited(lambda body: body.get("metadata", {}).get("refs", {}).pop(name, None))


def on_branch(remote: RemoteLake, branch: str) -> IcebergCommitter:
    committer = IcebergSink(remote.config.with_branch(branch)).open(SinkContext("job", SCHEMA, Metrics()))
    assert isinstance(committer, IcebergCommitter)
    return committer


def test_rows_for_a_branch_are_not_sent_before_the_branch_is_there(remote: RemoteLake, proxy: FaultProxy) -> None:
    filled(remote, 1)
    driver = on_branch(remote, "audit")
    written = write(driver, 1, [10])
    sent = len(proxy.asked("POST", remote.path))
    proxy.arm(without_ref("audit"), "POST", remote.path, times=None)
    with pytest.raises(CommitStateUnknownError, match=r"branch 'audit' .* none of this name") as caught:
        driver.commit(*written)
    assert "NessieCatalog(branch=" in str(caught.value.hint)
    # What made the branch; no row was sent.
    assert len(proxy.asked("POST", remote.path)) == sent + 1
    table = remote.table()
    assert (len(table.snapshots()), remote.rows()) == (1, [0])


def test_a_commit_to_a_branch_that_the_answer_lacks_is_in_doubt(remote: RemoteLake, proxy: FaultProxy) -> None:
    filled(remote, 1)
    driver = on_branch(remote, "audit")
    driver.commit(*write(driver, 1, [10]))
    proxy.arm(without_ref("audit"), "POST", remote.path, times=None)
    written = write(driver, 2, [11])
    with pytest.raises(CommitStateUnknownError, match="as done, but the table has none of this name"):
        driver.commit(*written)
    # Its files stay: they may be in a snapshot.
    assert remote.table().scan(snapshot_id=head(remote, "audit")).to_arrow()["id"].to_pylist() == [11, 10, 0]


def test_a_branch_that_stays_where_it_was_is_no_success(remote: RemoteLake, proxy: FaultProxy) -> None:
    driver = filled(remote, 1)
    before = head(remote, "main")

    def stay(body: dict[str, Any]) -> None:
        body["metadata"]["refs"]["main"]["snapshot-id"] = before

    proxy.arm(edited(stay), "POST", remote.path)
    with pytest.raises(CommitStateUnknownError, match=f"has it at snapshot {before}"):
        driver.commit(*write(driver, 1, [1]))
    assert remote.rows() == [0, 1]


def test_an_answer_that_is_younger_than_the_commit_is_a_success(remote: RemoteLake, proxy: FaultProxy) -> None:
    driver = filled(remote, 1)

    def overtaken(server: Server) -> Answer:
        server()
        filled_on = remote.table()
        filled_on.append(filled_on.scan(limit=1).to_arrow())
        metadata = remote.table()
        body = {"metadata-location": metadata.metadata_location, "metadata": metadata.metadata.model_dump(mode="json")}
        return Answer(200, {"Content-Type": "application/json"}, json.dumps(body, default=str).encode())

    proxy.arm(overtaken, "POST", remote.path)
    driver.commit(*write(driver, 1, [1]))
    assert len(remote.rows()) == 3


@pytest.mark.parametrize("what", ["tag", "branch"])
def test_a_tag_or_branch_that_is_not_there_is_not_reported_as_made(
    what: str, remote: RemoteLake, proxy: FaultProxy
) -> None:
    filled(remote, 1)
    manager = SnapshotManager(remote.config.ref)
    create = manager.create_tag if what == "tag" else manager.create_branch
    proxy.arm(without_ref("audited"), "POST", remote.path, times=None)
    with pytest.raises(CommitStateUnknownError, match=f"{what} 'audited' of table .* none of this name"):
        create("audited")
    proxy.disarm()
    assert remote.rows() == [0]


def test_check_does_not_put_its_empty_snapshot_on_main(remote: RemoteLake, proxy: FaultProxy) -> None:
    filled(remote, 1)
    proxy.arm(edited(lambda body: body["metadata"].update(refs={})), "POST", remote.path, times=None)
    *_, commit = table_probes(remote.config, SCHEMA, commits=True)
    with pytest.raises(CommitStateUnknownError, match="volley-check-"):
        commit.run()
    assert len(remote.table().snapshots()) == 1
    proxy.disarm()
    assert "committed and removed" in commit.run()
    assert remote.rows() == [0]


def head(remote: RemoteLake, branch: str) -> int:
    snapshot = remote.table().snapshot_by_name(branch)
    assert snapshot is not None
    return snapshot.snapshot_id


# --- Nessie, by name

NESSIE = NessieCatalog("http://127.0.0.1:9/iceberg", branch="dev")
ON_NESSIE = TableRef("db", "events", IcebergStorage.Local("/lake"), NESSIE)


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda: ON_NESSIE.with_branch("audit"), id="ref"),
        # Its tables of version 3 are refused before.
        pytest.param(
            lambda: IcebergSinkConfig(
                namespace="db", table="events", storage=ON_NESSIE.storage, catalog=NESSIE
            ).with_branch("audit"),
            id="sink",
            marks=pytest.mark.format_2,
        ),
        pytest.param(lambda: SnapshotManager(ON_NESSIE).create_tag("audited"), id="tag"),
        pytest.param(lambda: SnapshotManager(ON_NESSIE).create_branch("audit"), id="branch"),
        pytest.param(lambda: SnapshotManager(ON_NESSIE).create_snapshot(tag="audited"), id="snapshot"),
        pytest.param(lambda: IcebergSourceConfig(ON_NESSIE).with_hold(), id="hold"),
    ],
)
def test_branches_and_tags_of_nessies_tables_are_refused(ask: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match="no branches and tags") as caught:
        ask()
    assert "NessieCatalog(…, branch=…)" in str(caught.value.hint)


def test_changes_of_nessies_tables_are_refused() -> None:
    with pytest.raises(ConfigError, match="Nessie shows a table's last snapshot only") as caught:
        IcebergSourceConfig(ON_NESSIE).with_changes("follow")
    assert "another catalog" in str(caught.value.hint)
    assert IcebergSourceConfig(ON_NESSIE).ref == ON_NESSIE


def test_nessies_main_is_a_branch_like_any_other_of_rest() -> None:
    assert ON_NESSIE.with_branch("main") == ON_NESSIE
    rest = replace(ON_NESSIE, catalog=RestCatalog(NESSIE.address))
    assert rest.with_branch("audit").branch == "audit"
