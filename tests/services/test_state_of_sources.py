"""What a source keeps in a checkpoint on object storage, where no file is renamed and no folder is made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from s3fs import S3FileSystem

from tests.servers.seaweed import Seaweed
from volley.connectors.files import log
from volley.connectors.files.listing import LoggedFile
from volley.connectors.files.log import FileLog


@pytest.fixture
def state(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The folder of a source in a bucket."""
    keys = {"AWS_ACCESS_KEY_ID": seaweed.key, "AWS_SECRET_ACCESS_KEY": seaweed.secret}
    for name, value in {**keys, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": seaweed.s3_endpoint}.items():
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()
    S3FileSystem().makedirs("sources", exist_ok=True)
    yield "s3://sources/job/volley/source-0"
    S3FileSystem.clear_instance_cache()


def test_the_log_of_files_is_merged_beside_a_reader(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_FAN_IN", 3)
    writer, driver = FileLog(f"{state}/files"), FileLog(f"{state}/files")
    listed: list[LoggedFile] = []
    for number in range(10):
        listed.append(LoggedFile(f"in/{number}.json", number, 1_000.5))
        writer.append(listed)
        assert driver.count(writer.offset(number + 1)) == number + 1
        assert driver.files(number) == listed[number:]
    assert FileLog(f"{state}/files").files() == driver.files() == listed
    files = S3FileSystem().ls(f"{state}/files", refresh=True)
    assert [path.rpartition("/")[2] for path in files] == ["000000000000-000000000009-2.arrow", "000000000009.json"]
