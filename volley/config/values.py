"""What a file of pipelines becomes: sources, sinks, pipelines and how they run, as frozen values."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from html import escape
from types import MappingProxyType

from volley.checks import Duration, duration, keep
from volley.contracts.sink import Sink
from volley.contracts.source import Source
from volley.engine.options import StartOptions
from volley.engine.restart import Restart
from volley.environment import Environment
from volley.iceberg.sink import IcebergSink
from volley.iceberg.source import IcebergSource
from volley.secrets import redact
from volley.stream.pipeline import Pipeline
from volley.stream.stream import DataStream
from volley.views.view import MaterializedView

__all__ = ["Config", "ConfiguredPipeline"]


@dataclass(frozen=True)
class ConfiguredBranch:
    """Rows of a pipeline of a file, and where they go."""

    stream: DataStream
    sinks: tuple[str, ...]


@dataclass(frozen=True)
class ConfiguredPipeline:
    """A pipeline of a file.

    Args:
        name: Its name, and that of its job and checkpoint.
        stream: Its rows, before a split.
        pipeline: The same with its sinks.
        sources: The names of its sources, and of tables that it joins.
        branches: Its branches; without a split, one.
        enabled: False if `volley run` leaves it out.
        restart: What happens when it fails.
        options: The options of its start.
    """

    name: str
    stream: DataStream
    pipeline: Pipeline
    sources: tuple[str, ...]
    branches: tuple[ConfiguredBranch, ...]
    enabled: bool = True
    restart: Restart = field(default_factory=Restart)
    options: StartOptions = field(default_factory=StartOptions, hash=False)

    @property
    def sinks(self) -> tuple[str, ...]:
        """The names of its sinks, of all branches."""
        return tuple(name for branch in self.branches for name in branch.sinks)

    def _repr_html_(self) -> str:
        return self.pipeline._repr_html_()


@dataclass(frozen=True)
class ConfiguredView:
    """A materialised view of a file.

    Args:
        sources: The names of its sources, and of tables that it joins.
        sink: The name of the sink whose table it is kept in.
        enabled: False if `volley run` leaves it out.
    """

    view: MaterializedView
    sources: tuple[str, ...]
    sink: str
    enabled: bool = True
    interval: Duration = timedelta(seconds=10)

    def __post_init__(self) -> None:
        keep(self, interval=duration)

    @property
    def name(self) -> str:
        """The view's name."""
        return self.view.name


@dataclass(frozen=True)
class Config:
    """A file of pipelines; `load_config` makes it.

    Args:
        file: The file's name.
        environment: Where the pipelines run.
        sources: The sources, by name.
        sinks: The sinks, by name.
        pipelines: The pipelines, by name.
        views: The materialised views, by name.
        warnings: What is odd in the file, but no mistake.
        text: The file as YAML, with secrets masked and references instead of their values.
    """

    file: str
    environment: Environment
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
    pipelines: Mapping[str, ConfiguredPipeline]
    views: Mapping[str, ConfiguredView] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    text: str = field(default="", repr=False)
    _secrets: Collection[str] = field(default=frozenset(), repr=False)

    def __post_init__(self) -> None:
        for name in ("sources", "sinks", "pipelines", "views"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def checkpoint(self, pipeline: str) -> str:
        """Return the folder of a pipeline's checkpoint."""
        from volley.engine.checkpoint import locate

        folder = self.environment.checkpoint_dir
        return locate(None if folder is None else os.fspath(folder), pipeline)

    def makers(self, sources: Sequence[str], but: str | None = None) -> set[str]:
        """Return the kind and name of each enabled pipeline and view that makes the table of one of these sources.

        Args:
            but: The pipeline or view that reads them: it needs the table before it could make it.
        """
        refs = [source.config.ref for name in sources if isinstance(source := self.sources[name], IcebergSource)]
        return {
            f"{part} {name}"
            for part, name, sinks in self._enabled()
            for sink in map(self.sinks.get, sinks)
            if name != but and isinstance(sink, IcebergSink)
            if any((ref.address, ref.name) == (sink.config.ref.address, sink.config.ref.name) for ref in refs)
        }

    def _enabled(self) -> Iterator[tuple[str, str, Sequence[str]]]:
        """Yield the kind, the name and the sinks of each pipeline and view that runs."""
        for pipeline in self.pipelines.values():
            if pipeline.enabled:
                yield "pipeline", pipeline.name, pipeline.sinks
        for view in self.views.values():
            if view.enabled:
                yield "view", view.name, (view.sink,)

    def redact(self, text: str) -> str:
        """Return a text without the values that came from the environment or from files."""
        return redact(text, self._secrets)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text)}</pre>"
