"""Parquet files that pyarrow can't take: encrypted ones, huge pages, any bytes turned. A worker outlives them all."""

from __future__ import annotations

import base64
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from tests.processes import plain_environment
from tests.security.files import KILOBYTE, LIMIT, batches_of, count, lower_limits, parquet
from volley import SourceError


@pytest.fixture(autouse=True)
def lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    lower_limits(monkeypatch)


@pytest.fixture
def undecoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No page may be decoded."""

    def decode(*values: object) -> None:
        raise AssertionError("a page was decoded")

    monkeypatch.setattr("volley.formats.parquet._OpenRowGroup._read", decode)


PEOPLE = pa.table({"id": range(1_000), "secret": [f"s{number}" for number in range(1_000)]})


class Keys(pe.KmsClient):  # type: ignore[misc]
    """Keys that are wrapped in nothing."""

    def __init__(self, config: pe.KmsConnectionConfig) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


def encrypted(path: Path, **settings: Any) -> Path:
    configuration = pe.EncryptionConfiguration(footer_key="footer", **settings)
    properties = pe.CryptoFactory(Keys).file_encryption_properties(pe.KmsConnectionConfig(), configuration)
    with pq.ParquetWriter(path, PEOPLE.schema, encryption_properties=properties) as writer:
        writer.write_table(PEOPLE)
    return path


@pytest.mark.parametrize("schema", [None, "id long, secret string"])
def test_an_encrypted_column_is_refused_by_name(schema: str | None, tmp_path: Path) -> None:
    path = encrypted(tmp_path / "in.parquet", column_keys={"key": ["secret"]}, plaintext_footer=True)
    with pytest.raises(SourceError, match=r"in\.parquet: column 'secret' is encrypted"):
        count(path, schema)


def test_the_other_columns_of_a_file_with_an_encrypted_one_are_read(tmp_path: Path) -> None:
    path = encrypted(tmp_path / "in.parquet", column_keys={"key": ["secret"]}, plaintext_footer=True)
    assert count(path, "id long") == 1_000


@pytest.mark.parametrize("schema", [None, "id long"])
@pytest.mark.parametrize("settings", [{"uniform_encryption": True}, {"column_keys": {"key": ["secret"]}}])
def test_a_wholly_encrypted_file_is_called_so(settings: dict[str, Any], schema: str | None, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"in\.parquet is an encrypted Parquet file") as caught:
        count(encrypted(tmp_path / "in.parquet", **settings), schema)
    assert "decrypt" in str(caught.value.hint)


@pytest.mark.usefixtures("undecoded")
def test_a_long_value_in_a_dictionary_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 50), pa.array(["y", "x" * (400 * KILOBYTE)]))
    path = parquet(tmp_path / "value.parquet", column, compression="zstd")
    with pytest.raises(SourceError, match=r"value\.parquet: column 'v' has a value of 0\.1953 MB"):
        count(path, "v string")


@pytest.mark.usefixtures("undecoded")
def test_a_large_page_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    column = pa.array(["x" * (600 * KILOBYTE), *["y"] * 1_000])
    path = parquet(tmp_path / "page.parquet", column, use_dictionary=False, compression="zstd")
    with pytest.raises(SourceError, match=r"page\.parquet: column 'v' has a page of 0\.\d+ MB") as caught:
        count(path, "v string")
    assert "smaller row groups" in str(caught.value.hint)


def test_values_are_read_though_their_dictionary_is_large(tmp_path: Path) -> None:
    images = pa.array([np.random.default_rng(number).bytes(100) for number in range(1_500)])
    path = parquet(tmp_path / "images.parquet", images)
    assert [value for batch in batches_of(path, "v binary") for value in batch["v"].to_pylist()] == images.to_pylist()


def test_a_large_row_group_is_read_through_buffers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    table = pa.table({f"c{number}": generator.random(12_000) for number in range(4)})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=12_000, use_dictionary=False)
    held: list[int] = []
    monkeypatch.setattr("volley.formats.parquet.Window.hold", lambda window, chunks: held.append(len(chunks)))
    batches = batches_of(tmp_path / "in.parquet", None)
    assert pa.Table.from_batches(batches).equals(table)
    assert held == [0]


def test_long_values_that_share_their_beginning_come_a_few_at_a_time(tmp_path: Path) -> None:
    column = pa.array(["x" * (20 * KILOBYTE)] * 40, pa.large_string())
    options = {"use_dictionary": False, "column_encoding": {"v": "DELTA_BYTE_ARRAY"}}
    batches = batches_of(parquet(tmp_path / "in.parquet", column, **options), "v string")
    assert sum(batch.num_rows for batch in batches) == 40
    assert max(batch.nbytes for batch in batches) < 2 * LIMIT


def test_no_damage_to_any_byte_ends_the_process(tmp_path: Path) -> None:
    chance = random.Random(0)
    rows = [{"i": i, "s": f"v{i % 7}", "l": [i, None], "p": {"a": i, "b": str(i)}} for i in range(200)]
    table = pa.Table.from_pylist(rows)
    folder = tmp_path / "broken"
    folder.mkdir()
    encoded = {"use_dictionary": False, "column_encoding": {"i": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY"}}
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100, compression="none")
    pq.write_table(table, tmp_path / "b.parquet", row_group_size=100, data_page_version="2.0", **encoded)
    encrypted(tmp_path / "c.parquet", column_keys={"key": ["secret"]}, plaintext_footer=True)
    for number in range(300):
        whole = bytearray((tmp_path / f"{'abc'[number % 3]}.parquet").read_bytes())
        footer = len(whole) - int.from_bytes(whole[-8:-4], "little") - 8
        for _ in range(chance.choice([1, 2, 4])):
            at = chance.randrange(chance.choice([0, footer]), len(whole) - 8)
            whole[at : at + chance.choice([1, 1, 4])] = chance.randbytes(chance.choice([0, 1, 1, 4]))
        if number % 2:
            whole[-8:-4] = (len(whole) - 8 - footer).to_bytes(4, "little")
        (folder / f"{number}.parquet").write_bytes(whole)
    script = """
import sys
from pathlib import Path
from tests.security.files import count
from volley import VolleyError
refused = 0
for path in sorted(Path(sys.argv[1]).iterdir()):
    for schema in (None, "i long, s string, l array<long>, p struct<a: long, b: string>, id long, secret string"):
        print(path, schema, file=sys.stderr)
        try:
            count(path, schema)
        except VolleyError as error:
            assert path.name in str(error), error
            refused += 1
assert refused > 150, refused
"""
    command = [sys.executable, "-c", script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=plain_environment(), check=False)
    assert done.returncode == 0, done.stderr[-2000:]
