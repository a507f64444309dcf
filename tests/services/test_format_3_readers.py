"""The table of readers in docs/how-to/format-3.md is what they do."""

from __future__ import annotations

import pytest

from tests.servers.iceberg_spark import IcebergSpark
from tests.services.format_3_readers import on_page, table
from tests.services.readers import Lake

pytestmark = pytest.mark.nightly


def test_the_page_says_what_readers_read(iceberg_spark: IcebergSpark, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = table(Lake(tmp_path_factory.mktemp("lake"), iceberg_spark))
    assert on_page() == found, "run python -m tests.services.format_3_readers"
