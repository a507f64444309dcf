"""Makes the tables in docs/reference/yaml.md, and docs/reference/commands.md: ``python -m tests.unit.yaml_page``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from typer.testing import CliRunner

from volley.cli.app import app
from volley.config.connectors import SINK_CONNECTORS, SOURCE_CONNECTORS
from volley.config.models import PipelineModel, RuntimeModel
from volley.config.pipelines import view_model
from volley.config.steps import VERBS
from volley.documents.models import Model, Names, SchemaText, Size, Span, Time

__all__ = ["BEGIN", "COMMANDS", "YAML", "commands", "tables"]

_REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
YAML, COMMANDS = _REFERENCE / "yaml.md", _REFERENCE / "commands.md"
BEGIN = "<!-- tables: written by python -m tests.unit.yaml_page, checked by tests/unit/test_yaml_pages.py -->\n"

_NAMES = {
    Names: "name or names",
    SchemaText: "columns",
    Size: "size",
    Span: "time span",
    Time: "time",
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true, false",
    Any: "any",
}


def tables() -> str:
    """The tables of the page about YAML."""
    parts = [
        "## Pipelines\n",
        *_table(PipelineModel),
        "\n## Views\n",
        *_table(view_model()),
        "\n## Steps\n",
        *_rows("step", [(name, _type(verb.argument), verb.description) for name, verb in VERBS.items()]),
        *_inner({name: model for name, verb in VERBS.items() for model in _models(verb.argument)}),
        "\n## Runtime\n",
        *_table(RuntimeModel),
    ]
    for title, connectors in (("Source", SOURCE_CONNECTORS), ("Sink", SINK_CONNECTORS)):
        for name, connector in connectors.items():
            parts += [f"\n## {title} {name}\n", *_table(connector.model())]
    return "\n".join(parts) + "\n"


def _table(model: type[Model], around: tuple[type[Model], ...] = ()) -> Iterator[str]:
    """Yield a table of a model's settings, and one for each model inside it that is not one of those around it."""
    inner: dict[str, type[Model]] = {}
    rows = []
    for name, field in model.model_fields.items():
        for nested in _models(field.annotation):
            inner[name] = nested
        # Pydantic takes Annotated apart.
        annotation = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        rows.append((name, _type(annotation), _text(field.description or "")))
    yield from _rows("setting", rows)
    yield from _inner({name: nested for name, nested in inner.items() if name != "steps"}, (*around, model))


def _inner(models: Mapping[str, type[Model]], around: tuple[type[Model], ...] = ()) -> Iterator[str]:
    for name, nested in models.items():
        if nested.model_fields and nested not in around:
            yield f"\n`{name}`:\n"
            yield from _table(nested, around)


def _rows(first: str, rows: list[tuple[str, str, str]]) -> Iterator[str]:
    yield f"| {first} | value | meaning |"
    yield "| --- | --- | --- |"
    for name, value, meaning in rows:
        yield f"| `{name}` | {value} | {_escaped(meaning)} |"


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")


def _text(description: str) -> str:
    """Return a description as Markdown; the docstrings' marks for code are other ones."""
    return re.sub(r"``(.*?)``", r"`\1`", description)


def _models(annotation: Any) -> Iterator[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _type(annotation: Any) -> str:
    """Return a type in words."""
    for known, name in _NAMES.items():
        if annotation is known or annotation == known:
            return name
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        names = dict.fromkeys(_type(part) for part in get_args(annotation) if part is not NoneType)
        return ", or ".join(names)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if origin is Annotated:
        return _type(get_args(annotation)[0])
    if origin is list:
        return f"list of {_type(get_args(annotation)[0])}"
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return "settings"
    return "mapping"


_COMMANDS_HEAD = """# Commands

`pip install "volley-stream[cli]"` brings the command `volley`; `python -m volley` is the same. What runs jobs needs
Spark besides: `pip install "volley-stream[cli,jre]"`; what reads and maintains tables does not. The file with the
pipelines is `volley.yaml` here, unless `-c FILE` or the environment variable `VOLLEY_CONFIG` names another one;
[YAML](yaml.md) describes it. Values that come from the environment or from files are masked in all that is printed.

`volley --install-completion` lets your shell (Bash, Zsh, Fish, PowerShell) complete commands, their options, and the
names of pipelines, sources and sinks in the file; `volley --show-completion` prints what it installs.

| exit code | meaning |
| --- | --- |
| 0 | all is fine; pipelines have ended, or were stopped by a signal |
| 1 | a pipeline or a command failed |
| 2 | wrong arguments, also a snapshot or column that the table lacks |
| 69 | something can't be reached: catalog, storage, source |
| 78 | the file is wrong |
| 130, 143 | a second Ctrl-C or SIGTERM ended the process at once |
"""


def commands() -> str:
    """The page about the commands."""
    runner = CliRunner()
    names = re.findall(r"^  (\w+)  ", runner.invoke(app, ["--help"], terminal_width=100).output, re.M)
    parts = [_COMMANDS_HEAD]
    for name in names:
        help_text = runner.invoke(app, [name, "--help"], terminal_width=100, prog_name="volley").output
        lines = "\n".join(line.rstrip() for line in help_text.strip().splitlines())
        parts.append(f"## {name}\n\n```text\n{lines}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    head = YAML.read_text().partition(BEGIN)[0]
    YAML.write_text(f"{head}{BEGIN}\n{tables()}")
    COMMANDS.write_text(commands())
