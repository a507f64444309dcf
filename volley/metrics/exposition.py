"""Figures as metrics of prometheus_client, in a registry that reads them at every scrape, and as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from volley.errors import ConfigError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

__all__ = ["Description", "Readings", "described", "exposition", "families", "registry", "versions"]

Readings = Sequence[tuple[Mapping[str, str], Any]]
"""Values of one class, each with its Prometheus labels, which have the same names."""

Collect = Callable[[str], Iterator["Metric"]]
"""Returns the metrics as they are now; their names start with a prefix."""


@dataclass(frozen=True)
class Description:
    """A metric: its name behind the prefix, its type, its help, and how it is read from a value; None = left out."""

    name: str
    type: str
    text: str
    read: Callable[[Any], Any]


def described(figures: type, prefix: str = "") -> list[Description]:
    """Return the metrics of a dataclass: the fields that have their type and help as metadata."""
    return [
        Description(prefix + field.name, metric_type, field.metadata[metric_type], _reader(field.name))
        for field in fields(figures)
        for metric_type in field.metadata
    ]


def _reader(name: str) -> Callable[[Any], Any]:
    return lambda value: getattr(value, name)


def families(prefix: str, descriptions: Iterable[Description], readings: Readings) -> Iterator[Metric]:
    """Yield a family of metrics for each description, with a series for each reading; none without readings."""
    from prometheus_client import core

    classes = {
        "counter": core.CounterMetricFamily,
        "gauge": core.GaugeMetricFamily,
        "histogram": core.HistogramMetricFamily,
        "info": core.InfoMetricFamily,
    }
    for description in descriptions if readings else ():
        family: Any = classes[description.type](prefix + description.name, description.text, labels=[*readings[0][0]])
        for labels, value in readings:
            reading = description.read(value)
            if reading is not None:
                parts = (reading.cumulated(), reading.total) if description.type == "histogram" else (reading,)
                family.add_metric([*labels.values()], *parts)
        yield family


@cache
def versions() -> dict[str, str]:
    """Return the versions of Volley and of Python."""
    from importlib.metadata import version
    from platform import python_version

    return {"version": version("volley-stream"), "python": python_version()}


def registry(collect: Collect, prefix: str) -> CollectorRegistry:
    """Return a registry of these metrics alone, which are read anew at every scrape.

    Raises:
        ConfigError: If the prefix is not valid in a metric's name.
    """
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", prefix):
        raise ConfigError(f"metrics prefix {prefix!r} is not valid", hint="letters, digits and _; no digit first")

    class Live(Collector):
        def collect(self) -> Iterator[Metric]:
            return collect(f"{prefix}_iceberg_")

    registry = CollectorRegistry()
    registry.register(Live())
    return registry


def exposition(collect: Collect, prefix: str) -> str:
    """Return the metrics in Prometheus' text format; raises like `registry`."""
    from prometheus_client import generate_latest

    return generate_latest(registry(collect, prefix)).decode()
