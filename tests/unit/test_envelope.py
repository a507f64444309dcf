"""What is read again is what was written, or an error that names the file."""

from __future__ import annotations

import pytest

from volley import StorageError
from volley.storage.envelope import StateFormat

FORMAT = StateFormat("example", 2)


def test_the_first_line_says_what_follows() -> None:
    assert FORMAT.dump({"a": 1}) == b'volley example 2 7e5c46de 8\n{"a": 1}'


@pytest.mark.parametrize("body", [b"", b"\n", b'{"a": 1}', bytes(range(256)), b"volley example 2 00000000 0\n"])
def test_what_is_sealed_is_read_back(body: bytes) -> None:
    assert FORMAT.unseal(FORMAT.seal(body), "file") == body


def test_what_an_older_version_wrote_is_read() -> None:
    assert FORMAT.load(b'{"a": 1}', "file") == {"a": 1}
    assert StateFormat("example", 3).unseal(FORMAT.seal(b"body"), "file") == b"body"


def test_what_a_newer_version_wrote_is_refused_by_name() -> None:
    newer = StateFormat("example", 3).seal(b"body")
    with pytest.raises(StorageError, match=r"^some/file was written by a newer Volley: format 'example' version 3, "):
        FORMAT.unseal(newer, "some/file")


def test_another_format_is_not_read() -> None:
    with pytest.raises(ValueError, match="'other' and not 'example'"):
        FORMAT.unseal(StateFormat("other").seal(b"body"), "file")


def test_no_flipped_bit_gives_another_value() -> None:
    sealed = FORMAT.dump({"a": 1, "b": "text"})
    for bit in range(8 * len(sealed)):
        data = bytearray(sealed)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"^it|Expecting value|Extra data|'utf-8' codec"):
            FORMAT.load(bytes(data), "file")


@pytest.mark.parametrize("damaged", [FORMAT.seal(b"body")[:-1], FORMAT.seal(b"body") + b" ", FORMAT.seal(b"body")[:10]])
def test_what_is_cut_or_grown_is_not_read(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"^it"):
        FORMAT.unseal(damaged, "file")


def test_deep_nesting_is_damage() -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        FORMAT.load(b"[" * 1_100, "file")
