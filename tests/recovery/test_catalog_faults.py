"""Faults of a real REST catalog, made by a proxy before it: every row is in the table once, whatever was answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.recovery.lake import QUERY, Lake, retries, write
from tests.recovery.remote import RemoteLake
from tests.services.fault_proxy import (
    Answer,
    Fault,
    FaultProxy,
    Server,
    answer_after,
    answer_with,
    expire_tokens,
    hold_answer,
    hold_request,
    kind_of,
    lose_answer,
    lose_request,
)
from tests.tiers import some
from volley import (
    CatalogAuthError,
    CatalogError,
    CatalogUnreachableError,
    CommitConflictError,
    CommitStateUnknownError,
    Metrics,
    TableNotFoundError,
    VolleyError,
)
from volley.iceberg import IcebergTable
from volley.iceberg.commit.committer import IcebergCommitter

TOKENS = "/oauth/tokens"
LATER = "Fri, 31 Dec 2100 23:59:59 GMT"
BUSY = [429, 500, 502, 503, 504]
STATUS = [answer_with(status) for status in BUSY]


def by_name(fault: Fault) -> str:
    return fault.__name__


def by_kind(fault: Fault) -> str:
    return "busy" if fault in STATUS else kind_of(fault)


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Answers are held until the test ends."""
    event = threading.Event()
    yield event
    event.set()


def next_start_goes_on(remote: RemoteLake, proxy: FaultProxy, ids: list[int]) -> None:
    """The catalog is well again: a new driver repeats epoch 0 if it is not there, and adds epoch 1."""
    proxy.disarm()
    proxy.listen()
    driver = remote.driver()
    if driver.last_epoch(QUERY) is None:
        driver.commit(*write(driver, 0, ids))
    assert driver.last_epoch(QUERY) == 0
    driver.commit(*write(driver, 1, [100]))
    assert remote.rows() == [*ids, 100]
    epochs = [snapshot.summary["volley.epoch"] for snapshot in remote.table().snapshots() if snapshot.summary]
    assert epochs == ["0", "1"]


def test_all_of_a_client_goes_through_the_proxy(remote: RemoteLake, proxy: FaultProxy) -> None:
    driver = remote.driver()
    driver.commit(*write(driver, 0, [1]))
    assert proxy.asked("POST", TOKENS)
    assert proxy.asked("GET", "/v1/config")
    assert [exchange.client for exchange in proxy.asked("POST", remote.path)] == [200]
    assert remote.rows() == [1]


@pytest.mark.parametrize("times", some([1, 3]))
@pytest.mark.parametrize("fault", some([*STATUS, answer_with(409), lose_request], by_kind), ids=by_name)
def test_a_commit_that_fails_and_then_succeeds(remote: RemoteLake, proxy: FaultProxy, fault: Fault, times: int) -> None:
    driver = remote.driver()
    proxy.arm(fault, "POST", remote.path, times=times)
    driver.commit(*write(driver, 0, [1, 2]))
    assert [exchange.server for exchange in proxy.asked("POST", remote.path)] == [None] * times + [200]
    assert retries(driver) == times
    next_start_goes_on(remote, proxy, [1, 2])


@pytest.mark.parametrize("times", some([1, 3]))
@pytest.mark.parametrize("fault", some([*STATUS, lose_answer, lose_request], by_kind), ids=by_name)
def test_a_load_that_fails_and_then_succeeds(remote: RemoteLake, proxy: FaultProxy, fault: Fault, times: int) -> None:
    driver = remote.driver()
    proxy.arm(fault, "GET", remote.path, times=times)
    assert driver.last_epoch(QUERY) is None
    written = write(driver, 0, [1, 2])
    proxy.arm(fault, "GET", remote.path, times=times)
    driver.commit(*written)
    assert len(proxy.asked("POST", remote.path)) == 1
    next_start_goes_on(remote, proxy, [1, 2])


def test_a_lost_answer_is_found_by_its_mark(remote: RemoteLake, proxy: FaultProxy) -> None:
    driver = remote.driver()
    proxy.arm(lose_answer, "POST", remote.path, times=None)
    driver.commit(*write(driver, 0, [1, 2]))
    assert [exchange.server for exchange in proxy.asked("POST", remote.path)] == [200]
    next_start_goes_on(remote, proxy, [1, 2])


def assert_sent_again_with_new_tokens_only(remote: RemoteLake, proxy: FaultProxy, landed: int) -> None:
    """All changes landed at first; one whose token was refused may be sent again, if there is another token.

    SeaweedFS gives the same token within a second.
    """
    exchanges = proxy.asked("POST", remote.path)
    again = [exchange.server for exchange in exchanges[landed:]]
    assert [exchange.server for exchange in exchanges[:landed]] == [200] * landed
    assert again == [] or (again == [409] and exchanges[landed - 1].client in (401, 403, 419))


@pytest.mark.parametrize(
    "status",
    some([404, 503, 400, 401, 403, 408, 409, 419, 422, 429, 500, 501, 502, 504], by=lambda status: status // 100),
)
def test_a_commit_that_landed_whatever_a_gateway_says(remote: RemoteLake, proxy: FaultProxy, status: int) -> None:
    driver = remote.driver()
    proxy.arm(answer_after(status), "POST", remote.path)
    driver.commit(*write(driver, 0, [1, 2]))
    assert_sent_again_with_new_tokens_only(remote, proxy, landed=1)
    next_start_goes_on(remote, proxy, [1, 2])


def twice(server: Server) -> Answer:
    """A gateway that sends a request a second time, and passes on the second answer."""
    server()
    return server()


def html_after(server: Server) -> Answer:
    """The server commits; a gateway answers with a page of its own."""
    server()
    return Answer(200, {"Content-Type": "text/html"}, b"<html><body>Welcome</body></html>")


@pytest.mark.parametrize("fault", [twice, html_after], ids=["sent twice", "answered by a page"])
def test_a_commit_that_landed_behind_a_gateway(remote: RemoteLake, proxy: FaultProxy, fault: Fault) -> None:
    driver = remote.driver()
    for number in range(3):
        proxy.arm(fault, "POST", remote.path)
        driver.commit(*write(driver, number, [number]))
    proxy.arm(fault, "POST", remote.path)
    done = IcebergTable(remote.config.ref).compact(least_files=2)
    assert (done.files_before, done.files_after) == (3, 1)
    assert len(proxy.asked("POST", remote.path)) == 4
    assert all(exchange.fault for exchange in proxy.asked("POST", remote.path))
    assert remote.rows() == [0, 1, 2]
    assert len(remote.table().inspect.data_files()) == 1


@pytest.mark.parametrize("status", some([403, 404]))
def test_a_refusal_of_what_landed_deletes_nothing_while_the_table_can_t_be_looked_at(
    remote: RemoteLake, proxy: FaultProxy, status: int
) -> None:
    driver = remote.driver()
    written = write(driver, 0, [1, 2])
    proxy.arm(answer_with(status), "GET", remote.path, times=None, skip=1)
    proxy.arm(answer_after(status), "POST", remote.path, times=None)
    with pytest.raises(CommitStateUnknownError, match=f"injected {status}"):
        driver.commit(*written)
    assert remote.rows() == [1, 2]
    next_start_goes_on(remote, proxy, [1, 2])


@pytest.mark.parametrize("status", some([404, 403, 409]))
def test_a_compaction_that_landed_whatever_a_gateway_says(remote: RemoteLake, proxy: FaultProxy, status: int) -> None:
    driver = remote.driver()
    for number in range(3):
        driver.commit(*write(driver, number, [number]))
    proxy.arm(answer_after(status), "POST", remote.path)
    done = IcebergTable(remote.config.ref).compact(least_files=2)
    assert (done.files_before, done.files_after) == (3, 1)
    assert remote.rows() == [0, 1, 2]
    assert len(remote.table().inspect.data_files()) == 1


def test_a_compaction_that_is_refused_leaves_no_files(remote: RemoteLake, proxy: FaultProxy) -> None:
    driver = remote.driver()
    for number in range(3):
        driver.commit(*write(driver, number, [number]))
    proxy.arm(answer_with(403), "POST", remote.path, times=None)
    with pytest.raises(CatalogAuthError, match="injected 403"):
        IcebergTable(remote.config.ref).compact(least_files=2)
    assert remote.rows() == [0, 1, 2]


@pytest.mark.parametrize("status", some([429, 503]))
@pytest.mark.parametrize(("header", "least", "most"), [("2", 2, 2), ("3600", 30, 30), (LATER, 29, 30), ("soon", 0, 1)])
def test_a_busy_catalog_is_asked_again_when_it_says(
    remote: RemoteLake,
    proxy: FaultProxy,
    status: int,
    header: str,
    least: float,
    most: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, waits, retrying = remote.driver(), list[float](), threading.get_ident()

    def sleep(seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        # Other threads sleep by the same function.
        if threading.get_ident() == retrying:
            waits.append(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr("tenacity.nap.time.sleep", sleep)
    written = write(driver, 0, [1, 2])
    proxy.arm(answer_with(status, **{"Retry-After": header}), "POST", remote.path)
    driver.commit(*written)
    assert len(waits) == 1
    assert least <= waits[0] <= most
    proxy.arm(answer_with(status, **{"Retry-After": header}), "GET", remote.path)
    assert driver.last_epoch(QUERY) == 0
    assert least <= waits[-1] <= most
    assert remote.rows() == [1, 2]


def test_a_last_attempt_that_landed_whatever_a_gateway_says(remote: RemoteLake, proxy: FaultProxy) -> None:
    driver = remote.driver()
    proxy.arm(answer_with(409), "POST", remote.path, times=3)
    proxy.arm(answer_after(409), "POST", remote.path)
    # In doubt it may stop; that it did not land, which lets the job delete the files, would be wrong.
    with suppress(CommitStateUnknownError):
        driver.commit(*write(driver, 0, [1, 2]))
    next_start_goes_on(remote, proxy, [1, 2])


def test_a_request_that_arrives_before_its_own_retry(
    remote: RemoteLake, proxy: FaultProxy, released: threading.Event
) -> None:
    driver, arrived = remote.driver(), threading.Event()

    def first_the_other(server: Server) -> Answer:
        released.set()
        assert arrived.wait(30)
        return server()

    proxy.arm(hold_request(released, arrived), "POST", remote.path)
    proxy.arm(first_the_other, "POST", remote.path)
    driver.commit(*write(driver, 0, [1, 2]))
    assert [exchange.server for exchange in proxy.asked("POST", remote.path)] == [200, 409]
    next_start_goes_on(remote, proxy, [1, 2])


def test_a_request_that_arrives_when_the_next_driver_has_committed(
    remote: RemoteLake, proxy: FaultProxy, released: threading.Event
) -> None:
    driver, arrived = remote.driver(), threading.Event()
    written = write(driver, 0, [1, 2])
    proxy.arm(answer_with(503), "GET", remote.path, times=None, skip=1)
    proxy.arm(hold_request(released, arrived), "POST", remote.path)
    with pytest.raises(CommitStateUnknownError, match="may or may not"):
        driver.commit(*written)
    next_start_goes_on(remote, proxy, [1, 2])
    released.set()
    assert arrived.wait(30)
    assert remote.rows() == [1, 2, 100]


def test_an_answer_after_the_timeout_is_found_by_its_mark(
    remote: RemoteLake, proxy: FaultProxy, released: threading.Event
) -> None:
    driver = remote.driver()
    proxy.arm(hold_answer(released), "POST", remote.path)
    driver.commit(*write(driver, 0, [1, 2]))
    assert remote.rows() == [1, 2]
    released.set()
    next_start_goes_on(remote, proxy, [1, 2])


def test_a_load_that_hangs_is_asked_again(remote: RemoteLake, proxy: FaultProxy, released: threading.Event) -> None:
    driver = remote.driver()
    proxy.arm(hold_answer(released), "GET", remote.path)
    driver.commit(*write(driver, 0, [1, 2]))
    next_start_goes_on(remote, proxy, [1, 2])


def test_conflicts_without_end_did_not_land(remote: RemoteLake, proxy: FaultProxy) -> None:
    driver = remote.driver()
    proxy.arm(answer_with(409), "POST", remote.path, times=None)
    written = write(driver, 0, [1, 2])
    with pytest.raises(CommitConflictError, match="each of 4 attempts"):
        driver.commit(*written)
    assert len(proxy.asked("POST", remote.path)) == 4
    driver.abort(*written)
    assert remote.files() == []
    next_start_goes_on(remote, proxy, [1, 2])


@pytest.mark.parametrize("fault", some([*STATUS[1:], lose_request], by_kind), ids=by_name)
def test_commits_without_a_clear_answer_stay_in_doubt(remote: RemoteLake, proxy: FaultProxy, fault: Fault) -> None:
    driver = remote.driver()
    proxy.arm(fault, "POST", remote.path, times=None)
    with pytest.raises(CommitStateUnknownError, match="may or may not") as caught:
        driver.commit(*write(driver, 0, [1, 2]))
    assert "start the job again" in str(caught.value.hint)
    assert len(proxy.asked("POST", remote.path)) == 4
    assert len(remote.files()) == 1
    assert remote.rows() == []
    next_start_goes_on(remote, proxy, [1, 2])


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (429, "Injected", CatalogUnreachableError),
        (400, "Injected", CatalogError),
        (501, "Injected", CatalogError),
        # So does Nessie 0.99 say that it has no such operation.
        (500, "UnsupportedOperationException", CatalogError),
    ],
)
def test_a_catalog_that_takes_no_commit(
    remote: RemoteLake, proxy: FaultProxy, status: int, code: str, kind: type[VolleyError]
) -> None:
    driver = remote.driver()
    proxy.arm(answer_with(status, code), "POST", remote.path, times=None)
    written = write(driver, 0, [1, 2])
    # It has not landed, so that the job may delete the files.
    with pytest.raises(kind, match=str(status)):
        driver.commit(*written)
    assert len(proxy.asked("POST", remote.path)) == 4
    assert remote.rows() == []
    driver.abort(*written)
    assert remote.files() == []
    next_start_goes_on(remote, proxy, [1, 2])


@pytest.mark.parametrize("fault", some([*STATUS, lose_request], by_kind), ids=by_name)
def test_a_catalog_that_never_loads_the_table(remote: RemoteLake, proxy: FaultProxy, fault: Fault) -> None:
    driver = remote.driver()
    written = write(driver, 0, [1, 2])
    proxy.arm(fault, "GET", remote.path, times=None)
    with pytest.raises(CatalogError, match=proxy.uri):
        driver.commit(*written)
    with pytest.raises(CatalogError, match=proxy.uri):
        driver.last_epoch(QUERY)
    assert len(proxy.asked("POST", remote.path)) == 0
    next_start_goes_on(remote, proxy, [1, 2])


@pytest.mark.parametrize(("status", "kind"), [(403, CatalogAuthError), (404, TableNotFoundError)])
@pytest.mark.parametrize("method", ["GET", "POST"], ids=["load", "commit"])
def test_a_refusal_stops_with_its_reason(
    remote: RemoteLake, proxy: FaultProxy, method: str, status: int, kind: type[VolleyError]
) -> None:
    driver = remote.driver()
    written = write(driver, 0, [1, 2])
    proxy.arm(answer_with(status), method, remote.path, times=None)
    with pytest.raises(kind, match=f"injected {status}"):
        driver.commit(*written)
    assert remote.rows() == []
    next_start_goes_on(remote, proxy, [1, 2])


@pytest.mark.parametrize("status", some([404, 401, 403, 419]))
def test_a_refusal_after_a_lost_answer_deletes_nothing(remote: RemoteLake, proxy: FaultProxy, status: int) -> None:
    driver = remote.driver()
    written = write(driver, 0, [1, 2])
    proxy.arm(answer_with(status), "GET", remote.path, times=None, skip=1)
    proxy.arm(lose_answer, "POST", remote.path)
    with pytest.raises(CommitStateUnknownError, match="may or may not"):
        driver.commit(*written)
    assert len(remote.files()) == 1
    assert remote.rows() == [1, 2]
    next_start_goes_on(remote, proxy, [1, 2])


@pytest.mark.parametrize("method", ["GET", "POST"], ids=["load", "commit"])
@pytest.mark.parametrize("status", some([401, 419]))
def test_an_expired_token_is_renewed(remote: RemoteLake, proxy: FaultProxy, status: int, method: str) -> None:
    driver = remote.driver()
    written = write(driver, 0, [1, 2])
    proxy.arm(expire_tokens(proxy, status), method, remote.path, times=None)
    driver.commit(*written)
    assert [exchange.client for exchange in proxy.asked(method, remote.path)][-2:] == [status, 200]
    next_start_goes_on(remote, proxy, [1, 2])


@pytest.mark.parametrize("method", ["GET", "POST"], ids=["load", "commit"])
@pytest.mark.parametrize("status", some([401, 419]))
def test_credentials_that_no_longer_work(remote: RemoteLake, proxy: FaultProxy, status: int, method: str) -> None:
    driver = remote.driver()
    written, before = write(driver, 0, [1, 2]), len(proxy.asked("POST", TOKENS))
    proxy.arm(answer_with(status), method, remote.path, times=None)
    with pytest.raises(CatalogAuthError, match="refused"):
        driver.commit(*written)
    assert len(proxy.asked("POST", TOKENS)) > before, "a new token was tried"
    next_start_goes_on(remote, proxy, [1, 2])


@pytest.mark.parametrize("method", ["GET", "POST"], ids=["load", "commit"])
def test_a_catalog_that_refuses_connections_for_a_moment(remote: RemoteLake, proxy: FaultProxy, method: str) -> None:
    class Returning(Metrics):
        """The catalog is back when the first retry is counted."""

        def record_retry(self) -> None:
            proxy.listen()
            super().record_retry()

    driver = remote.driver(Returning())
    written = write(driver, 0, [1, 2])
    proxy.arm(proxy.refuse_from_now, method, remote.path)
    driver.commit(*written)
    assert retries(driver) == 1
    next_start_goes_on(remote, proxy, [1, 2])


def commit_in_vain(driver: IcebergCommitter, remote: RemoteLake) -> None:
    written = write(driver, 0, [1, 2])
    with pytest.raises(CommitStateUnknownError, match="may or may not"):
        driver.commit(*written)
    assert len(remote.files()) == 1


def test_a_catalog_that_is_gone_after_the_commit(remote: RemoteLake, proxy: FaultProxy) -> None:
    proxy.arm(proxy.lose_answer_and_refuse, "POST", remote.path)
    commit_in_vain(remote.driver(), remote)
    assert remote.rows() == [1, 2]
    next_start_goes_on(remote, proxy, [1, 2])


def test_a_catalog_that_is_gone_with_the_commit(remote: RemoteLake, proxy: FaultProxy) -> None:
    proxy.arm(proxy.refuse_from_now, "POST", remote.path)
    commit_in_vain(remote.driver(), remote)
    assert remote.rows() == []
    next_start_goes_on(remote, proxy, [1, 2])


def test_a_commit_that_finds_nobody_was_not_sent(remote: RemoteLake, proxy: FaultProxy) -> None:
    driver = remote.driver()
    written = write(driver, 0, [1, 2])

    def last_answer(server: Server) -> Answer:
        answer = server()
        proxy.refuse()
        return answer

    proxy.arm(last_answer, "GET", remote.path)
    with pytest.raises(CatalogUnreachableError, match="Connection refused"):
        driver.commit(*written)
    driver.abort(*written)
    assert remote.files() == []
    next_start_goes_on(remote, proxy, [1, 2])


def test_a_catalog_that_is_gone_before_the_commit(remote: RemoteLake, proxy: FaultProxy) -> None:
    driver = remote.driver()
    written = write(driver, 0, [1, 2])
    proxy.refuse()
    with pytest.raises(CatalogUnreachableError, match="Connection refused"):
        driver.commit(*written)
    next_start_goes_on(remote, proxy, [1, 2])


@pytest.mark.parametrize("path", [TOKENS, "/v1/config"])
def test_a_catalog_that_can_not_be_opened(remote: RemoteLake, proxy: FaultProxy, path: str) -> None:
    proxy.arm(answer_with(503), "POST" if path == TOKENS else "GET", path, times=None)
    with pytest.raises(CatalogError, match=proxy.uri):
        remote.driver()
    next_start_goes_on(remote, proxy, [1, 2])


def test_a_clock_behind_the_tables_sends_the_tables_time(remote: RemoteLake, proxy: FaultProxy) -> None:
    driver = remote.driver()
    driver.commit(*write(driver, 0, [1]))
    ahead = time.time() + 7200
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: ahead)
        remote.table().append(remote.table().scan().to_arrow())
    driver.commit(*write(driver, 1, [2]))
    IcebergTable(remote.config.ref).compact(least_files=2)
    times = [snapshot.timestamp_ms for snapshot in remote.table().snapshots()]
    assert times[1:] == [int(ahead * 1000)] * 3
    assert remote.rows() == [1, 1, 2]


@pytest.mark.parametrize("gone", [False, True])
def test_old_metadata_files_are_deleted_without_a_warning(
    gone: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Some REST servers have deleted the files already."""
    lake = Lake(tmp_path)
    lake.config = lake.config.with_table_properties({"write.metadata.previous-versions-max": "2"})
    driver = lake.driver()
    folder = Path(lake.table().location().removeprefix("file://")) / "metadata"
    for number in range(6):
        old = sorted(folder.glob("*.metadata.json"))[:-2]
        for file in old if gone else []:
            file.unlink()
        driver.commit(*write(driver, number, [number]))
    assert not caplog.records
    assert len(list(folder.glob("*.metadata.json"))) == 3
    assert lake.rows() == [0, 1, 2, 3, 4, 5]
    lake.close()


@pytest.mark.parametrize(
    "fault",
    some([lose_answer, twice, html_after, *map(answer_after, (404, 400, 403, 409, 429, 500))], by_kind),
    ids=by_name,
)
def test_a_start_over_that_landed_whatever_a_gateway_says(remote: RemoteLake, proxy: FaultProxy, fault: Fault) -> None:
    driver = remote.driver()
    driver.commit(*write(driver, 0, [1, 2]))
    with remote.table().transaction() as transaction:
        # pyiceberg itself would take the first refusal for the truth.
        transaction.set_properties({"commit.retry.num-retries": "0"})
    proxy.arm(fault, "POST", remote.path)
    driver.clear()
    assert_sent_again_with_new_tokens_only(remote, proxy, landed=2)
    assert remote.rows() == []
    driver.commit(*write(driver, 1, [3]))
    assert remote.rows() == [3]


def test_a_start_over_that_is_refused_changes_nothing(remote: RemoteLake, proxy: FaultProxy) -> None:
    driver = remote.driver()
    driver.commit(*write(driver, 0, [1, 2]))
    proxy.arm(answer_with(403), "POST", remote.path, times=None)
    with pytest.raises(CatalogAuthError, match="injected 403"):
        driver.clear()
    assert remote.rows() == [1, 2]
