"""The pages about YAML and the commands say what the models and the commands say."""

from __future__ import annotations

import re

import yaml

from tests.unit.editor import validator
from tests.unit.yaml_page import BEGIN, COMMANDS, YAML, commands, tables
from volley import load_config


def test_the_tables_of_settings_are_the_models() -> None:
    assert YAML.read_text().partition(BEGIN)[2].strip() == tables().strip(), "run python -m tests.unit.yaml_page"


def test_the_page_of_commands_is_their_help() -> None:
    assert COMMANDS.read_text() == commands(), "run python -m tests.unit.yaml_page"


def test_the_pages_example_can_be_loaded(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (text,) = re.findall(r"^```yaml\n(.*?)^```", YAML.read_text(), re.M | re.S)
    (tmp_path / "secret").write_text("id:hunter2hunter2")
    file = tmp_path / "volley.yaml"
    file.write_text(text.replace("/run/secrets/catalog", "secret"))
    assert list(load_config(file, {"CATALOG": "http://polaris:8181"}).pipelines) == ["orders"]
    validator().validate(yaml.safe_load(text))
