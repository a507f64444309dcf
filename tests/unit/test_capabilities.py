"""A job asks of a class what it says that it can do; a class of 0.2.0, which says nothing, goes on to work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from volley import Committer, ConfigError, Environment, Epoch, MemorySource, PlanError, Reader, Writer, WriteResult
from volley.contracts.reports import Lag
from volley.contracts.source import Offset
from volley.engine.acknowledge import Readers
from volley.spark.log import SparkLog


class Numbers(Reader):
    """A reader without capabilities."""

    schema = pa.schema({"n": pa.int64()})

    def __init__(self) -> None:
        self.calls: list[Offset] = []

    def initial_offset(self) -> Offset:
        return {"n": 0}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        return {"n": 3}

    def splits(self, start: Offset, end: Offset) -> list[Any]:
        return []

    def read(self, split: Any) -> Any:
        return iter(())


class Target(Committer):
    """A committer without capabilities."""

    def writer(self, epoch: Epoch) -> Writer:
        raise NotImplementedError

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        raise NotImplementedError


def commit_of(self: Any, offset: Offset) -> None:
    self.calls.append(offset)


def lag_of(self: Any, offset: Offset) -> Lag | None:
    return Lag("numbers", rows=3 - offset["n"])


def asked(reader: Reader, folder: Path) -> list[Lag | None]:
    """The lags that a job sees behind its epoch 0, which it has acknowledged."""
    for name, lines in (("offsets", ["v1", "{}", json.dumps({"n": 2})]), ("commits", ["v1", "{}"])):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "0").write_text("\n".join(lines))
    readers = Readers("job", (reader,), SparkLog(str(folder)))
    readers.committed(0)
    return readers.lags(0)


def test_a_reader_of_0_2_0_is_asked_for_what_it_has(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="say so by") as told:
        old = type("Old", (Numbers,), {"committed": commit_of, "lag": lag_of})
    assert [(str(warning.message), warning.filename) for warning in told] == [
        ("Old has committed: say so by acknowledges = True, as 0.4 will not look for it", __file__),
        ("Old has lag: say so by knows_lag = True, as 0.4 will not look for it", __file__),
    ]
    reader = old()
    assert asked(reader, tmp_path) == [Lag("numbers", rows=1)]
    assert reader.calls == [{"n": 2}]


def test_the_methods_may_come_from_a_class_beside_the_contract() -> None:
    class Clearing:
        def clear(self) -> None:
            """Nothing."""

    with pytest.warns(DeprecationWarning, match=r"Emptied has clear: say so by can_clear = True"):

        class Emptied(Clearing, Target):
            pass

    assert Emptied().can_clear


def test_a_reader_is_asked_for_what_it_says_at_the_moment(tmp_path: Path) -> None:
    class Wrapper(Numbers):
        knows_lag = False
        is_told = False

        @property
        def acknowledges(self) -> bool:
            return self.is_told

        committed = commit_of
        lag = lag_of

    reader = Wrapper()
    assert asked(reader, tmp_path) == [None]
    assert reader.calls == []
    reader.is_told = True
    assert asked(reader, tmp_path) == [None]
    assert reader.calls == [{"n": 2}]


@pytest.mark.parametrize(
    ("base", "flag", "method"),
    [(Numbers, "acknowledges", "committed"), (Numbers, "knows_lag", "lag"), (Target, "can_clear", "clear")],
)
def test_a_flag_without_its_method_is_refused(base: type, flag: str, method: str) -> None:
    with pytest.raises(ConfigError, match=f"Empty says {flag} = True, and has no {method}"):
        type("Empty", (base,), {flag: True})


def test_a_class_that_says_no_is_believed(tmp_path: Path) -> None:
    said_no = type("SaidNo", (Numbers,), {"committed": commit_of, "acknowledges": False})
    subclass = type("Below", (said_no,), {})
    for kind in (said_no, subclass):
        reader = kind()
        asked(reader, tmp_path)
        assert reader.calls == []


def test_a_class_that_travels_by_value_keeps_its_flags() -> None:
    """As one of a notebook does: what it says is not looked for again."""
    with pytest.warns(DeprecationWarning, match="acknowledges"):
        own = type("Own", (Numbers,), {"committed": commit_of})
    assert cloudpickle.loads(cloudpickle.dumps(own())).acknowledges


def test_a_table_without_history_is_refused_before_a_row_is_read() -> None:
    stream = Environment().from_source(MemorySource([], "id long, at timestamp"))
    joined = stream.join(MemorySource([{"id": 1}]), "id", as_of="at")
    with pytest.raises(PlanError, match=r"MemorySource\(1 row\) has rows of one time only"):
        _ = joined.schema
