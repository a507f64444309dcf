"""The table of readers in docs/how-to/format-3.md is what they do."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator
from subprocess import TimeoutExpired

import pytest

from tests.servers.iceberg_spark import IcebergSpark
from tests.servers.trino import Trino, of_files
from tests.services.format_3_readers import on_page, table
from tests.services.readers import Lake

pytestmark = pytest.mark.nightly


@pytest.fixture
def trino(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    """Trino 476, from Maven: a gigabyte that not every machine can have."""
    folder = tmp_path_factory.mktemp("trino")
    try:
        process = Trino(folder, of_files(folder))
    except (pytest.fail.Exception, TimeoutExpired) as error:
        pytest.skip(f"Trino can't be had: {error}")
    try:
        yield process.start()
    finally:
        process.stop()


# Spark and Trino read metadata that they refuse twenty times, within a minute and a half.
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("spark")
def test_the_page_says_what_readers_read(
    iceberg_spark: IcebergSpark, trino: Trino, tmp_path_factory: pytest.TempPathFactory
) -> None:
    faulthandler.cancel_dump_traceback_later()
    found = table(Lake(tmp_path_factory.mktemp("lake"), iceberg_spark), trino)
    assert on_page() == found, "run python -m tests.services.format_3_readers"
