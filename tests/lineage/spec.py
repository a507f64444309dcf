"""OpenLineage's specification as JSON schemas, from the classes that its project generates from the specification.

The schemas themselves come with no package. The classes name each property, its type, and whether it is required; what
they don't tell is here: formats, the names of facets, and the values of a few texts.
"""

from __future__ import annotations

import importlib
import pkgutil
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import attr
from jsonschema import Draft202012Validator, FormatChecker
from openlineage.client import generated
from openlineage.client.generated import base

__all__ = ["check"]

_FORMATS = {
    **{"runId": "uuid", "eventTime": "date-time"},
    **dict.fromkeys(("producer", "schemaURL", "_producer", "_schemaURL"), "uri"),
}
_VALUES = {
    "processingType": ["BATCH", "STREAMING", "SERVICE"],
    "storageLayer": ["iceberg", "delta"],
}
_TRANSFORMATIONS = {
    "DIRECT": {"IDENTITY", "TRANSFORMATION", "AGGREGATION"},
    "INDIRECT": {"JOIN", "GROUP_BY", "FILTER", "SORT", "WINDOW", "CONDITIONAL"},
}
_FACETS = {
    "columnLineage": "ColumnLineageDatasetFacet",
    "dataQualityAssertions": "DataQualityAssertionsDatasetFacet",
    "datasetType": "DatasetTypeDatasetFacet",
    "errorMessage": "ErrorMessageRunFacet",
    "inputStatistics": "InputStatisticsInputDatasetFacet",
    "jobType": "JobTypeJobFacet",
    "outputStatistics": "OutputStatisticsOutputDatasetFacet",
    "parent": "ParentRunFacet",
    "processing_engine": "ProcessingEngineRunFacet",
    "schema": "SchemaDatasetFacet",
    "sourceCode": "SourceCodeJobFacet",
    "sourceCodeLocation": "SourceCodeLocationJobFacet",
    "storage": "StorageDatasetFacet",
    "symlinks": "SymlinksDatasetFacet",
    "tags": {"TagsRunFacet", "TagsJobFacet"},
}


def check(event: dict[str, Any]) -> None:
    """Fail unless an event is as the specification says, and has nothing that it does not know."""
    _valid(event, base.RunEvent)
    facets = [event["run"].get("facets", {}), event["job"].get("facets", {})]
    for dataset in (*event["inputs"], *event["outputs"]):
        facets += [dataset.get(name, {}) for name in ("facets", "inputFacets", "outputFacets")]
    for name, facet in (item for group in facets for item in group.items()):
        known = _FACETS[name]
        url = facet["_schemaURL"]
        assert url.rpartition("/")[2] in ({known} if isinstance(known, str) else known), (name, url)
        _valid(facet, _classes()[url])
        if name == "columnLineage":
            _check_transformations(facet)


def _check_transformations(facet: dict[str, Any]) -> None:
    columns = [column for field in facet["fields"].values() for column in field["inputFields"]]
    for column in (*columns, *facet["dataset"]):
        for way in column["transformations"]:
            assert way["subtype"] in _TRANSFORMATIONS[way["type"]]


def _valid(value: Any, known: type) -> None:
    _validator(known).validate(value)


@cache
def _validator(known: type) -> Draft202012Validator:
    definitions: dict[str, Any] = {}
    schema = _reference(known, definitions)
    return Draft202012Validator({**schema, "$defs": definitions}, format_checker=FormatChecker())


@cache
def _classes() -> dict[str, type]:
    """The classes of facets by the addresses of their schemas."""
    modules = [
        importlib.import_module(f"{generated.__name__}.{module.name}")
        for module in pkgutil.iter_modules(generated.__path__)
    ]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return {value._get_schema(): value for value in found if issubclass(value, base.BaseFacet)}


def _reference(known: type, definitions: dict[str, Any]) -> dict[str, str]:
    """A reference to the schema of a class, which is added to the definitions: a class may have itself within."""
    if known.__name__ not in definitions:
        definitions[known.__name__] = {}
        definitions[known.__name__].update(_schema(known, definitions))
    return {"$ref": f"#/$defs/{known.__name__}"}


def _schema(known: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(known)
    fields = attr.fields(known)
    required = [field.name for field in fields if field.default is attr.NOTHING or field.name in _FORMATS]
    properties = {field.name: _property(field.name, hints[field.name], definitions) for field in fields}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _property(name: str, hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a property; facets are checked one by one."""
    if name in _FORMATS:
        return {"type": "string", "format": _FORMATS[name]}
    if name in _VALUES:
        return {"enum": _VALUES[name]}
    if name in ("facets", "inputFacets", "outputFacets"):
        return {"type": "object"}
    return _of_type(hint, definitions)


def _of_type(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        # What is None is left out.
        (kind,) = (arg for arg in args if arg is not NoneType)
        return _of_type(kind, definitions)
    if origin is list:
        return {"type": "array", "items": _of_type(args[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of_type(args[1], definitions)}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [value.value for value in hint]}
    if hint is Any:
        return {}
    if attr.has(hint):
        return _reference(hint, definitions)
    return {"type": {str: "string", int: "integer", bool: "boolean", float: "number"}[hint]}
