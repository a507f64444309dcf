"""Rows that a role may not see are an error, and no table with fewer rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.captured import Database
from tests.postgres.jobs import difference, mirror
from tests.postgres.runs import running
from volley import SourceContext, SourceError


@pytest.fixture
def role(shop: Database) -> Iterator[str]:
    """A role that may replicate, and read what the tables' policies let it see: those of even numbers."""
    name = f"r{shop.name}"[:60]
    shop.run(f"create role {name} login replication password 'hush-hush'", f"grant select on orders to {name}")
    shop.run("create policy evens on orders using (id % 2 = 0)", "create publication volley for table orders")
    yield name
    shop.drop_slots()
    shop.run(f"drop owned by {name}", f"drop role {name}")


def test_a_table_of_which_a_role_sees_some_rows(shop: Database, tmp_path: Path, role: str) -> None:
    shop.run("alter table orders enable row level security")
    source = shop.source(user=role, password="hush-hush")
    with pytest.raises(SourceError, match=rf"role '{role}' sees only those rows of table public\.orders") as error:
        source.open(SourceContext(str(tmp_path)))
    assert error.value.hint == f'alter role "{role}" bypassrls'
    # The stream has them all.
    source = shop.source(user=role, password="hush-hush", load="none")
    with running(source, tmp_path) as run:
        run.epoch()
    shop.run("insert into orders values (2001, 'odd', 1, null), (2002, 'even', 1, null)")
    with running(source, tmp_path, run.start) as run:
        assert [row["id"] for row in run.epoch()] == [2001, 2002]


@pytest.mark.usefixtures("spark")
def test_a_role_that_sees_all_rows(shop: Database, tmp_path: Path, role: str) -> None:
    shop.run("alter table orders enable row level security", f"alter role {role} bypassrls")
    mirror(tmp_path, shop.source(user=role, password="hush-hush"))
    assert difference(shop, tmp_path) == []


def test_policies_that_come_before_a_reload(shop: Database, tmp_path: Path, role: str) -> None:
    source = shop.source(user=role, password="hush-hush", on_rewrite="reload", bounded=False)
    with running(source, tmp_path) as run:
        assert len(run.epoch()) == 1000
        shop.run("alter table orders enable row level security", "alter table orders alter note type text using 'x'")
        shop.run("update orders set note = 'new' where id = 1")
        end = run.end()
        while end["loads"] < 2:
            end = run.end()
        with pytest.raises(SourceError, match="row-level security policy for table") as error:
            run.read(end)
    assert "bypassrls" in str(error.value.hint)


def test_the_partitions_of_a_table_are_read_one_by_one(shop: Database, tmp_path: Path, role: str) -> None:
    shop.run(
        "create table parts (id int primary key) partition by range (id)",
        "create table parts_1 partition of parts for values from (0) to (100)",
        f"grant select on parts to {role}",
        "alter publication volley add table parts",
        "alter publication volley set (publish_via_partition_root = true)",
    )
    source = shop.source("public.parts", user=role, password="hush-hush")
    with pytest.raises(SourceError, match=r'may not read table public\.parts: "public"\."parts_1" is a part of it'):
        source.open(SourceContext(str(tmp_path)))
    shop.run(f"grant select on parts_1 to {role}", "alter table parts_1 enable row level security")
    with pytest.raises(SourceError, match=r'sees only those rows of table public\.parts .*: "public"\."parts_1"'):
        source.open(SourceContext(str(tmp_path)))
