"""Files are deleted on S3 by few requests, elsewhere one by one; those that can't be deleted are named."""

from __future__ import annotations

from uuid import uuid4

import pytest
from fsspec import AbstractFileSystem
from pyiceberg.io.fsspec import FsspecFileIO

from tests.servers.s3 import ADMIN, BUCKET, READER, REGION, S3, Keys
from tests.services.fault_proxy import answer_as_s3
from volley.iceberg.storage import files as storage_files
from volley.iceberg.storage.files import delete_files, deletion_error, file_system

REQUEST = r"\?delete"


class Folder:
    """A folder in S3, seen with the keys of one user."""

    def __init__(self, server: S3, keys: Keys = ADMIN, path: str | None = None) -> None:
        properties = {
            "s3.endpoint": server.endpoint,
            "s3.region": REGION,
            "s3.access-key-id": keys.access_key_id,
            "s3.secret-access-key": keys.secret_access_key,
        }
        self.server, self.io, self.path = server, FsspecFileIO(properties), path or f"s3://{BUCKET}/{uuid4().hex}"

    def write(self, *names: str) -> list[str]:
        paths = [f"{self.path}/{name}" for name in names]
        for path in paths:
            self._files.pipe_file(path, b"rows")
        return paths

    def names(self) -> set[str]:
        self._files.invalidate_cache()
        # SeaweedFS keeps the folder when its last file is gone.
        names = {path.rpartition("/")[2] for path in self._files.find(self.path)}
        return names - {self.path.rpartition("/")[2]}

    def requests(self) -> tuple[int, int]:
        """How many requests deleted many files, and how many deleted one."""
        return len(self.server.proxy.asked("POST", REQUEST)), len(self.server.proxy.asked("DELETE", self.path[-32:]))

    def files_of(self, path: str) -> AbstractFileSystem:
        return file_system(self.io, path)

    @property
    def _files(self) -> AbstractFileSystem:
        return file_system(self.io, self.path)


@pytest.fixture
def folder(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(storage_files, "_CHUNK", 4)
    return Folder(s3_server)


def test_s3_deletes_many_files_by_one_request(folder: Folder) -> None:
    paths = folder.write(*(f"{number}.parquet" for number in range(9)), "100 %.parquet", "d=1&e=<2>.parquet")
    before = folder.requests()
    assert delete_files(folder.files_of, [*paths, f"{folder.path}/gone.parquet"]) == (12, {})
    assert folder.names() == set()
    assert folder.requests() == (before[0] + 3, before[1])


def test_a_pattern_in_a_name_stands_for_itself(folder: Folder) -> None:
    folder.write("a1", "a2", "b")
    paths = folder.write("a*", "[ab]", "?")
    assert delete_files(folder.files_of, paths) == (3, {})
    assert folder.names() == {"a1", "a2", "b"}


def test_a_storage_without_such_requests_deletes_one_by_one(folder: Folder) -> None:
    paths = folder.write("a", "b", "c")
    before = folder.requests()
    folder.server.proxy.arm(answer_as_s3(501, "NotImplemented"), "POST", REQUEST)
    assert delete_files(folder.files_of, paths) == (3, {})
    folder.server.proxy.disarm()
    assert folder.names() == set()
    assert folder.requests()[1] == before[1] + 3


def test_files_that_may_not_be_deleted_are_named(folder: Folder) -> None:
    paths = folder.write("a", "b")
    reader = Folder(folder.server, READER, folder.path)
    done, failures = delete_files(reader.files_of, paths)
    assert (done, list(failures)) == (2, paths)
    for path, failure in failures.items():
        assert f"deleting {path} was refused" in deletion_error(failure, path)
    assert folder.names() == {"a", "b"}


def test_the_deletion_ends_between_two_chunks(folder: Folder) -> None:
    paths, asked = folder.write(*"abcdef"), iter([True, False])
    assert delete_files(folder.files_of, paths, lambda: next(asked)) == (4, {})
    assert folder.names() == {"e", "f"}


def test_paths_of_a_listing_are_deleted_too(folder: Folder) -> None:
    """They have no scheme: an orphan search lists such paths."""
    listed = [path.removeprefix("s3://") for path in folder.write("a", "b")]
    assert delete_files(lambda _: file_system(folder.io, folder.path), listed) == (2, {})
    assert folder.names() == set()
