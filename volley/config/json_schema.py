"""The JSON Schema of a file of pipelines, for completion and checks in editors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import models_json_schema

from volley.config.connectors import SINK_CONNECTORS, SOURCE_CONNECTORS, YamlConnector
from volley.config.models import DocumentModel, PipelineModel, RuntimeModel
from volley.config.pipelines import view_model
from volley.documents.models import Model

__all__ = ["json_schema"]

_REFERENCE = {"type": "string", "pattern": r"\$\{"}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a file of pipelines.

    Example:
        >>> sorted(json_schema()["properties"])
        ['pipelines', 'runtime', 'sinks', 'sources', 'version', 'views']
    """
    connectors = [*SOURCE_CONNECTORS.values(), *SINK_CONNECTORS.values()]
    models: list[type[Model]] = [
        DocumentModel,
        PipelineModel,
        RuntimeModel,
        view_model(),
        *(connector.model() for connector in connectors),
    ]
    names, definitions = models_json_schema([(model, "validation") for model in models], ref_template="#/$defs/{model}")
    references = {model: names[model, "validation"] for model in models}
    document = definitions["$defs"].pop(references[DocumentModel]["$ref"].rpartition("/")[2])
    document["properties"] |= {
        "version": {"enum": ["1.0", 1.0, 1, "1"], "description": document["properties"]["version"]["description"]},
        "sources": _parts("The sources, by name.", SOURCE_CONNECTORS, references),
        "sinks": _parts("The sinks, by name.", SINK_CONNECTORS, references),
        "pipelines": _named("The pipelines, by name.", references[PipelineModel]),
        "views": _named("The materialised views, by name.", references[view_model()]),
        "runtime": _optional(references[RuntimeModel]),
    }
    schema: dict[str, Any] = _with_references({**document, **definitions})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Pipelines of Volley"}


def _parts(description: str, connectors: Mapping[str, YamlConnector], references: Mapping[Any, Any]) -> dict[str, Any]:
    kinds = [_part(name, connector, references[connector.model()]) for name, connector in connectors.items()]
    names = {"type": "object", "properties": {"connector": {"enum": list(connectors)}}, "required": ["connector"]}
    return _named(description, {"allOf": [names, *kinds]})


def _part(name: str, connector: YamlConnector, settings: Any) -> dict[str, Any]:
    """Return what holds for the parts of one connector."""
    properties = {"connector": {"const": name}, "config": _optional(settings)}
    if connector.takes_streams:
        properties["streams"] = {"type": "array"}
    return {
        "if": {"properties": {"connector": {"const": name}}},
        "then": {"properties": properties, "additionalProperties": False},
    }


def _named(description: str, of: Any) -> dict[str, Any]:
    return {"type": ["object", "null"], "description": description, "additionalProperties": of}


def _optional(schema: Any) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _with_references(schema: Any) -> Any:
    """Let a ``${NAME}`` stand wherever a number, a flag or one of several texts is expected."""
    if isinstance(schema, list):
        return [_with_references(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _with_references(value) for key, value in schema.items()}
    if schema.get("type") in ("integer", "number", "boolean") or "enum" in schema:
        outside = {key: inner.pop(key) for key in ("description", "default", "title") if key in inner}
        return {"anyOf": [inner, _REFERENCE], **outside}
    return inner
