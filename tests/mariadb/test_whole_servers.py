"""What is done to a whole server: it is killed, its log is purged or begun anew, its settings change.

Each process of a test run has servers of its own for these tests: sources of other tests need the log as it was.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mariadb.shops import Shop, applied, same
from tests.postgres.runs import running
from tests.waiting import wait_until
from volley import SourceContext, SourceError

# By server: a setting that sources refuse to start with, the value it has, and one that is refused.
REFUSED = {
    "MariaDB": [("binlog_row_metadata", "FULL", "MINIMAL")],
    "MySQL": [
        ("binlog_row_metadata", "FULL", "MINIMAL"),
        ("binlog_row_value_options", "", "PARTIAL_JSON"),
        ("gtid_mode", "ON", "ON_PERMISSIVE"),
    ],
}


def purge(shop: Shop) -> None:
    """Purge all files of the log but the last; the server leaves those that a closed connection seems to read still."""
    ((last, *_),) = shop.rows(shop.server.status)

    def purged() -> bool:
        shop.run(f"purge binary logs to '{last}'")
        return [name for name, *_ in shop.rows("show binary logs")] == [last]

    wait_until(purged, 30, "the server has purged its log")


def test_compressed_events_are_read(own_shop: Shop, tmp_path: Path) -> None:
    with running(own_shop.source(), tmp_path) as run:
        rows = run.epoch()
        start = run.start
    compress = "binlog_transaction_compression" if own_shop.is_mysql else "log_bin_compress"
    own_shop.run(f"set global {compress} = 1")
    if not own_shop.is_mysql:
        own_shop.run("set global log_bin_compress_min_len = 10")
    try:
        own_shop.run("update orders set note = repeat('x', 2000)", "delete from orders where id > 900")
        own_shop.run("insert into orders values (2000, repeat('y', 40), 1, repeat('z', 300))")
    finally:
        own_shop.run(f"set global {compress} = 0")
    with running(own_shop.source(), tmp_path, start) as run:
        assert same(applied(run.epoch(), applied(rows)), own_shop)


def test_a_killed_server_loses_nothing(own_shop: Shop, tmp_path: Path) -> None:
    source = own_shop.source(bounded=False, timeout="5s")
    with running(source, tmp_path) as run:
        made = applied(run.epoch())
        for number in range(3):
            own_shop.run(f"update orders set note = 'before {number}'")
            own_shop.server.kill()
            own_shop.server.start()
            own_shop.run(f"insert into orders values ({3000 + number}, 'x', 1, null)")

        def is_whole() -> bool:
            nonlocal made
            made = applied(run.epoch(), made)
            return same(made, own_shop)

        wait_until(is_whole, 30, "the source has read all changes")
        assert same(made, own_shop)


def test_a_purged_log_is_named(own_shop: Shop, tmp_path: Path) -> None:
    with running(own_shop.source(), tmp_path) as run:
        run.epoch()
        start = run.start
    own_shop.run("insert into orders values (2000, 'lost', 1, null)", "flush binary logs", "flush binary logs")
    purge(own_shop)
    with (
        pytest.raises(SourceError, match="is gone: the server has purged"),
        running(own_shop.source(), tmp_path, start),
    ):
        pass


def test_files_without_captured_changes_may_be_purged(own_shop: Shop, tmp_path: Path) -> None:
    with running(own_shop.source(), tmp_path) as run:
        made = applied(run.epoch())
        start = run.start
    own_shop.run("flush binary logs", "create table others (id int primary key)", "insert into others values (1)")
    with running(own_shop.source(), tmp_path, start) as run:
        assert run.epoch() == []
        start = run.start
    purge(own_shop)
    own_shop.run("delete from orders where id = 1")
    with running(own_shop.source(), tmp_path, start) as run:
        assert same(applied(run.epoch(), made), own_shop)


def test_a_log_that_began_anew_is_refused(own_shop: Shop, tmp_path: Path) -> None:
    with running(own_shop.source(), tmp_path) as run:
        start = run.start
    own_shop.run("insert into orders values (2000, 'new', 1.5, null)")
    with running(own_shop.source(), tmp_path, start) as run:
        run.epoch()
    own_shop.run(own_shop.server.begin_anew, "update orders set note = repeat('x', 300)")
    with pytest.raises(SourceError, match="began anew"), running(own_shop.source(), tmp_path, start):
        pass


def test_rows_without_the_names_of_their_columns_are_refused(own_shop: Shop, tmp_path: Path) -> None:
    with running(own_shop.source(), tmp_path) as run:
        start = run.start
    own_shop.run("set global binlog_row_metadata = MINIMAL")
    try:
        own_shop.run("delete from orders where id = 1")
    finally:
        own_shop.run("set global binlog_row_metadata = FULL")
    with pytest.raises(SourceError, match="does not tell the names"), running(own_shop.source(), tmp_path, start):
        pass


def test_settings_of_a_server_that_are_refused(own_shop: Shop, tmp_path: Path) -> None:
    for name, value, refused in REFUSED[own_shop.server.product]:
        own_shop.run(f"set global {name} = '{refused}'")
        try:
            with pytest.raises(SourceError, match=rf"{name} (is|are) {refused}"):
                own_shop.source().open(SourceContext(str(tmp_path), 2))
        finally:
            own_shop.run(f"set global {name} = '{value}'")
