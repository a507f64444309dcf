"""The rules of the house: who may import whom, where heavy packages and pyiceberg's private names may stand."""

from __future__ import annotations

import ast
from fnmatch import fnmatch

import pytest

import volley
import volley.iceberg
from tests.architecture import LEVELS, parsed, private_names, sources, violations


def test_no_import_breaks_a_rule() -> None:
    assert list(violations(sources())) == []


def test_private_names_of_pyiceberg_stand_in_one_room() -> None:
    assert list(private_names(sources())) == []


FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "
ILLEGAL = {
    "upwards": ("columns.casts", "import volley.engine.job"),
    "upwards, for types": ("columns.dictionaries", f"{FOR_TYPES}from volley.engine.job import Job"),
    "upwards, in an if": ("iceberg.schema.types", "if True:\n    from volley.iceberg import commit"),
    "upwards, in a function": ("contracts.source", "def f():\n    from volley.stream.stream import DataStream"),
    "upwards, inside a package": ("iceberg.storage.values", "from volley.iceberg.catalogs.values import RestCatalog"),
    "between connectors": ("connectors.files.reader", "from volley.connectors.memory import source as rows"),
    "from a connector to iceberg": ("connectors.memory.sink", "from volley.iceberg.modes import Append"),
    "from iceberg to a connector": ("iceberg.sink", "from volley.connectors.kafka.source import KafkaSource"),
    "from a room to the whole": ("plan.nodes", "from volley import Environment"),
    "a circle inside a room": ("formats.input_file", f"{FOR_TYPES}from volley.formats.json_lines import FormatReader"),
    "Arrow in a value": ("connectors.files.source", "def f():\n    import pyarrow"),
    "Spark in a format": ("formats.json", "from pyspark.sql import DataFrame"),
    "pyiceberg outside of its room": ("engine.launch", "import pyiceberg"),
}


@pytest.mark.parametrize("case", ILLEGAL)
def test_an_illegal_import_is_found(case: str) -> None:
    module, line = ILLEGAL[case]
    modules = sources()
    assert list(violations({**modules, module: f"{modules[module]}\n{line}\n"}))


def test_every_room_in_the_order_is_there() -> None:
    assert [room for room in LEVELS if not any(fnmatch(name, room) for name in sources())] == []


@pytest.mark.parametrize("module", ["alone", "alone.source"])
def test_a_module_without_a_room_is_named_with_the_place_to_add_it(module: str) -> None:
    (line,) = violations({**sources(), module: '"""Logs."""\nfrom volley import errors\n'})
    assert line.startswith(f"{module} has no room: ")
    assert "ORDER in tests/architecture.py" in line


def test_a_new_connector_has_a_room_by_its_folder() -> None:
    source = {"connectors.logs.source": '"""Logs."""\nfrom volley import errors\n'}
    assert list(violations({**sources(), **source})) == []
    other = {"connectors.logs.sink": "from volley.connectors.memory.source import MemorySource\n"}
    assert list(violations({**sources(), **other})) == ["connectors.logs.sink imports connectors.memory.source"]


PRIVATE = {
    "imported": "from pyiceberg.table.update.snapshot import _FastAppendFiles",
    "read": "table._do_commit()",
    "overridden": "from pyiceberg.io import FileIO\nclass Mine(FileIO):\n    def _open(self): ...",
}


@pytest.mark.parametrize("case", PRIVATE)
def test_a_private_name_is_found(case: str) -> None:
    modules = sources()
    text = f"{modules['iceberg.commit.tables']}\n{PRIVATE[case]}\n"
    assert list(private_names({**modules, "iceberg.commit.tables": text}))


def test_file_names_have_no_underscore_in_front() -> None:
    assert [
        name for name in sources() if any(part.startswith("_") and not part.endswith("__") for part in name.split("."))
    ] == []


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, text in sources().items() if not ast.get_docstring(parsed(text))] == []


@pytest.mark.parametrize("package", [volley, volley.iceberg])
def test_public_names_exist(package: object) -> None:
    names = package.__all__  # type: ignore[attr-defined]
    assert sorted(names) == sorted(set(names))
    assert all(hasattr(package, name) for name in names)
    assert len(dir(package)) == len(set(dir(package)))
    assert set(names) <= set(dir(package))
