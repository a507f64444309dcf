"""Loads a file of pipelines; raises one error with all of its mistakes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from volley.checks import mapping, optional
from volley.checks import path as checked_path
from volley.config.assembly import assemble
from volley.config.models import DocumentModel
from volley.config.shown import shown
from volley.config.values import Config
from volley.documents.collector import Collector
from volley.documents.mistakes import Mistake, error_of
from volley.documents.references import References
from volley.documents.yaml_text import Document, parse
from volley.errors import ConfigError, brief
from volley.secrets import redact

__all__ = ["check_file", "load_config"]


@brief
def load_config(path: str | os.PathLike[str], variables: Mapping[str, str] | None = None) -> Config:
    """Return the sources, sinks and pipelines of a YAML file: the same values as Python builds. Nothing is opened.

    Args:
        path: The file; `docs/yaml.md` describes it.
        variables: The environment variables for ``${NAME}``; None = those of this process.

    Raises:
        ConfigError: If the file can't be read or has mistakes: the message has all of them, each with line and column.
        MissingDependencyError: If a package is not installed that an expression or a connector needs.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "volley.yaml")
        ...     _ = file.write_text('''
        ... sources: {events: {connector: files, config: {path: "in/*.json"}}}
        ... sinks: {out: {connector: console}}
        ... pipelines: {show: {source: events, sink: out, steps: [{drop: [note]}]}}
        ... ''')
        ...     config = load_config(file)
        >>> print(config.pipelines["show"].pipeline)
        write ConsoleSink(rows=20)
          drop 'note'
            read FileSource(path='in/*.json', format='json')
    """
    file, given = checked_path("path", path), optional(mapping)("variables", variables)
    config, mistakes, secrets = check_file(file, given)
    if config is None:
        error = error_of(os.fspath(file), mistakes)
        raise ConfigError(redact(error.message, secrets), error.hint and redact(error.hint, secrets))
    return config


def check_file(
    path: str | os.PathLike[str], variables: Mapping[str, str] | None = None, columns: bool = False
) -> tuple[Config | None, list[Mistake], set[str]]:
    """Return what a file says, or None and its mistakes; and the secrets that messages must not show.

    Args:
        path: The file.
        variables: The environment variables; None = those of this process.
        columns: Look whether steps and sinks fit the columns that sources declare, too.
    """
    file = FilePath(path)
    references = References(os.environ if variables is None else variables, file.parent)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        hint = "check the path; volley init writes a first file" if isinstance(error, OSError) else "save it as UTF-8"
        return None, [Mistake(f"the file can't be read: {reason}", (), hint)], set()
    document = parse(text, os.fspath(path), references)
    collector = Collector(document)
    config = _config(document, collector, references, columns)
    return (None if collector.mistakes else config), collector.mistakes, references.secrets


def _config(document: Document, collector: Collector, references: References, columns: bool) -> Config | None:
    values: Any = document.value
    if collector.mistakes and values is None:
        return None
    if values is None:
        collector.add((), "the file is empty", "volley init writes a first one")
        return None
    top = collector.check(DocumentModel, values)
    if top is None:
        return None
    if top.version is not None and str(top.version) not in ("1", "1.0"):
        collector.add(("version",), f"version {top.version!r} is unknown", '"1.0"')
    # A file with mistakes becomes no pipeline, and is not shown.
    text = "" if collector.mistakes else shown(document)
    return assemble(document.file, top, collector, text, references.secrets, columns)
