"""The blocks of shell, YAML, Docker and systemd in the documents: what they name is there, and is said rightly."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from configparser import ConfigParser
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
import typer
import yaml
from packaging.requirements import Requirement
from typer.testing import CliRunner

from tests.installs import EXTRAS, OURS, ROOT, installed_by
from tests.pages import Block, blocks
from volley.cli.app import app
from volley.queries.statements import statements_of

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELL = ("bash", "console", "sh")
TEXTS = {page: page.read_text() for page in PAGES}
FOUND = [(page, block) for page, text in TEXTS.items() for block in blocks(text)]


def of(*languages: str) -> pytest.MarkDecorator:
    """The blocks of some languages, as cases of a test."""
    found = [(page, block) for page, block in FOUND if block.language in languages]
    return pytest.mark.parametrize(("page", "block"), found, ids=[f"{page.stem}-{block.line}" for page, block in found])


def test_each_language_is_looked_at() -> None:
    assert {block.language for _, block in FOUND} == {"python", *SHELL[:2], "yaml", "dockerfile", "ini", "sql"}


# --- shell

# Programs that the pages don't explain; those of Volley, pip and make are looked at below.
KNOWN = {"cd", "mkdir", "make", "pip", "python", "spark-submit", "tar", "volley", ".", "environment/bin/pip"}


def commands(text: str) -> list[list[str]]:
    """The commands of a block, each as its words, without variables that are set before it."""
    lines = [part for line in text.replace("\\\n", " ").splitlines() for part in line.split(" && ")]
    words = [shlex.split(line, comments=True) for line in lines]
    return [kept for each in words if (kept := [word for word in each if not re.match(r"[A-Z_]+=", word)])]


@of(*SHELL)
def test_shell(page: Path, block: Block) -> None:
    read = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
    assert read.returncode == 0, read.stderr
    for words in commands(block.text):
        assert words[0] in KNOWN
        if words[0] == "volley":
            parse(words[1:])
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M)
        if words[:2] == ["python", "-m"]:
            assert find_spec(words[2])
        if words[0] == "spark-submit":
            options = {word for word in words if word.startswith("--")}
            assert options <= {"--master", "--py-files", "--archives"}


def parse(words: list[str]) -> None:
    """Read the words behind ``volley`` as the program does, without doing what they say."""
    command = typer.main.get_command(app)
    assert isinstance(command, click.Group | typer.core.TyperGroup)
    context = command.make_context("volley", list(words))
    name, found, rest = command.resolve_command(context, list(words))
    assert found is not None
    found.make_context(name, rest, parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_within_a_text(page: Path) -> None:
    for text in re.findall(r"`volley ([a-z][^`>]*)`", TEXTS[page]):
        if not re.match(r"(pipeline|state) \d", text):  # the first words of files
            parse(shlex.split(text))


@pytest.mark.parametrize("words", [["snapshot"], ["run", "--onec"], ["reset", "--x", "y"]])
def test_a_wrong_command_is_found(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"No such (command|option)"):
        parse(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_is_to_be_installed_exists(page: Path) -> None:
    for requirement in map(Requirement, installed_by(TEXTS[page])):
        assert requirement.extras <= EXTRAS
        assert requirement.name == OURS or metadata.version(requirement.name)


# --- files of pipelines

SOURCES = {
    "readings": {"schema": "sensor string, at timestamp, heat double, sent long"},
    "orders": {"schema": "id long, price double"},
    "refunds": {"schema": "id long"},
}


@of("sql")
def test_sql(page: Path, block: Block) -> None:
    statements = statements_of(block.text)
    assert all(statement.query for statement in statements)
    assert statements


@of("yaml")
def test_yaml(page: Path, block: Block, tmp_path: Path) -> None:
    (document,) = yaml.safe_load_all(block.text)
    if "apiVersion" in document:
        check_deployment(document)
        return
    # A part of a file names sources and sinks that stand elsewhere.
    pipelines = document.get("pipelines", {}).values()
    rest: dict[str, Any] = {}
    if "sources" not in document:
        config = {name: {"path": f"{name}/*.json", **SOURCES[name]} for name in {each["source"] for each in pipelines}}
        rest["sources"] = {name: {"connector": "files", "config": each} for name, each in config.items()}
    if "sinks" not in document:
        rest["sinks"] = {each["sink"]: {"connector": "console"} for each in pipelines}
    file = tmp_path / "volley.yaml"
    file.write_text(block.text + (yaml.safe_dump(rest) if rest else ""))
    (tmp_path / "secret").write_text("a:secret")
    file.write_text(re.sub(r"\$\{file:[^}]*\}", "${file:secret}", file.read_text()))
    done = CliRunner().invoke(app, ["check", "--offline", "-c", str(file)], env={"CATALOG": "http://catalog:8181"})
    assert done.exit_code == 0, done.output


def check_deployment(document: Any) -> None:
    """What Kubernetes would refuse, or silently not do."""
    assert (document["apiVersion"], document["kind"]) == ("apps/v1", "Deployment")
    spec = document["spec"]
    template = spec["template"]
    assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert spec["strategy"] == {"type": "Recreate"}
    pod = template["spec"]
    (container,) = pod["containers"]
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    probes = [value["httpGet"] for name, value in container.items() if name.endswith("Probe")]
    assert len(probes) == 3
    assert {each["port"] for each in probes} == set(ports)
    assert {each["path"] for each in probes} <= {"/healthz", "/readyz"}
    job = "".join(block.text for page, block in FOUND if page.stem == "containers" and block.language == "python")
    assert f"metrics_port={ports['metrics']}" in job
    names = {each["name"]: each for each in container["env"]}
    assert set(re.findall(r'os\.environ(?:\.get\(|\[)"(\w+)"', job)) == set(names)
    assert names["CHECKPOINTS"]["value"] == container["volumeMounts"][0]["mountPath"]
    # Kubernetes can't tell that a user with a name is not root: the image has a number.
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert re.search(r"^USER \d+$", dockerfile(), re.M)


# --- an image

INSTRUCTIONS = {"COPY", "ENTRYPOINT", "ENV", "FROM", "RUN", "USER", "WORKDIR"}
# In Debian 12 and 13; the name of a version's own package is in one of them only.
PACKAGES = {"default-jre-headless", "tini"}


def dockerfile() -> str:
    (text,) = (block.text for _, block in FOUND if block.language == "dockerfile")
    return text


def test_the_image() -> None:
    lines = dockerfile().replace("\\\n", " ").splitlines()
    instructions = [line.split(" ", 1) for line in lines]
    assert {name for name, _ in instructions} <= INSTRUCTIONS
    assert instructions[0][0] == "FROM"
    # A tag without the name of a release has another Debian one day.
    image = re.fullmatch(r"python:(3\.\d+)-slim-(bookworm|trixie)", instructions[0][1])
    assert image is not None
    assert image[1] in (ROOT / "setup.cfg").read_text()
    shell = "\n".join(text for name, text in instructions if name == "RUN")
    assert subprocess.run(["bash", "-n"], input=shell, text=True).returncode == 0
    installs = re.findall(r"apt-get install ([^&|;\n]*)", shell)
    assert {word for each in installs for word in each.split() if word[0] != "-"} == PACKAGES
    entry = json.loads(next(text for name, text in instructions if name == "ENTRYPOINT"))
    assert entry[0] in PACKAGES
    copied = next(text for name, text in instructions if name == "COPY").split()
    assert copied[-1] == entry[-1]
    # Its own user comes when all is installed.
    order = [name for name, _ in instructions]
    assert order.index("USER") > max(index for index, name in enumerate(order) if name == "RUN")


def test_the_packages_of_the_image_are_debians() -> None:
    program = shutil.which("apt-cache")
    shown = program and subprocess.run([program, "show", *sorted(PACKAGES)], capture_output=True, text=True).stdout
    if not shown:
        pytest.skip("no lists of Debian's packages here: apt-get update")
    assert set(re.findall(r"^Package: (.*)$", shown, re.M)) == PACKAGES
    needed = re.search(r"^Depends: .*openjdk-(\d+)-jre-headless", shown, re.M)
    assert needed is not None
    assert 17 <= int(needed[1]) <= 23


# --- a service


@of("ini")
def test_a_unit_of_systemd(page: Path, block: Block, tmp_path: Path) -> None:
    unit = ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(block.text)
    service = unit["Service"]
    assert service["ReadWritePaths"] == service["WorkingDirectory"]
    # Spark and Volley write to the temporary folder.
    assert service["ProtectSystem"] != "strict" or service["PrivateTmp"] == "yes"
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed: the names of the settings are not checked")
    for name in ("python", "orders.env"):
        (tmp_path / name).touch(mode=0o755)
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={tmp_path}/python", block.text, flags=re.M)
    (tmp_path / "orders.service").write_text(text)
    done = subprocess.run([program, "verify", tmp_path / "orders.service"], capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if "orders.service" in line] == []
