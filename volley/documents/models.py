"""Pydantic models of settings: types of fields, and models made from frozen classes, and from methods, in Python."""

from __future__ import annotations

import inspect
import os
import re
import types
import warnings
from collections.abc import Collection, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    create_model,
)

from volley import checks
from volley.errors import ConfigError

__all__ = ["Model", "Names", "SchemaText", "Size", "Span", "Time", "Whole", "given", "model_of"]


class Model(BaseModel):
    """Settings with known names; others are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def given(model: Model) -> dict[str, Any]:
    """Return the settings that a document gives, by their names.

    Example:
        >>> class Point(Model):
        ...     x: int = 0
        ...     y: int = 0
        >>> given(Point(y=0))
        {'y': 0}
    """
    return {name: getattr(model, name) for name in type(model).model_fields if name in model.model_fields_set}


def _no_flag(value: Any) -> Any:
    if isinstance(value, bool):
        raise ConfigError(f"{value} is no number")
    return value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _number_of(value: Any) -> Any:
    """Return a number that an environment variable gives as text."""
    return float(value) if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value) else value


def _span(value: Any, info: ValidationInfo) -> Any:
    checks.duration_or_zero(str(info.field_name), value)
    return value


def _size(value: Any, info: ValidationInfo) -> int:
    return checks.size(str(info.field_name), int(value) if isinstance(value, str) and value.isdecimal() else value)


def _time(value: Any, info: ValidationInfo) -> datetime:
    return checks.instant(str(info.field_name), value)


def _schema(value: Any) -> Any:
    if not isinstance(value, str | dict):
        raise ConfigError("a schema is a text or a mapping", hint='"id long, name string", or {id: long, name: string}')
    return value


def _texts_or_numbers(description: str) -> WithJsonSchema:
    return WithJsonSchema({"type": ["string", "number"], "description": description})


Whole = Annotated[int, BeforeValidator(_no_flag)]
"""A whole number."""
Number = Annotated[float, BeforeValidator(_no_flag)]
"""A number."""
Names = Annotated[
    list[str],
    BeforeValidator(_listed),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}}),
]
"""A name, or a list of names."""
Span = Annotated[
    Any,
    BeforeValidator(_number_of),
    AfterValidator(_span),
    _texts_or_numbers('A time span: seconds, or a text such as "500ms", "5s", "2m", "1h".'),
]
"""A time span."""
Size = Annotated[Any, AfterValidator(_size), _texts_or_numbers('Bytes, or a text such as "32MB".')]
"""A number of bytes."""
Time = Annotated[Any, AfterValidator(_time), WithJsonSchema({"type": "string", "format": "date-time"})]
"""A point in time; without a zone, in UTC."""
SchemaText = Annotated[Any, AfterValidator(_schema), WithJsonSchema({"type": ["string", "object"]})]
"""Columns and their types."""

# What the fields of frozen classes may be, and how a document says it.
_TYPES: dict[Any, Any] = {
    timedelta: Span,
    datetime: Time,
    os.PathLike[str]: str,
    Sequence[str]: Names,
    SchemaText: SchemaText,
    int: Whole,
    float: Number,
}


@cache
def model_of(settings: Any, leave_out: Collection[str] = frozenset(), base: type[Model] = Model) -> type[Model]:
    """Return the model of settings, by the names, types and descriptions that they have in Python.

    Args:
        settings: A dataclass, or a method, whose arguments are the settings. It checks the values; the model checks
            their types. A mapping with known keys has a dataclass with a field for each under ``"keys"`` in its field's
            metadata.
        leave_out: Settings that documents don't have, or have in another way.
        base: The model of settings that documents have beside these.

    Example:
        >>> from volley.connectors.console import ConsoleSink
        >>> model_of(ConsoleSink).model_fields["rows"].description
        'The maximum number of rows to print per epoch. Each task sends at most as many to the driver.'
    """
    required = _fields_of(settings) if isinstance(settings, type) else _arguments_of(settings)
    names = [name for name in required if name not in leave_out and not name.startswith("_")]
    hints, keys = _hints_of(settings, names), _keys_of(settings)
    described = descriptions(settings)
    definitions: dict[str, Any] = {
        name: (
            _type_of(hints[name], keys.get(name)),
            Field(default=... if required[name] else None, description=described.get(name)),
        )
        for name in names
    }
    described_by = settings if base is Model else base
    summary = (inspect.getdoc(described_by) or "").partition("\n\n")[0]
    with warnings.catch_warnings():
        # A deprecated method of pydantic's models has this name.
        warnings.filterwarnings("ignore", 'Field name "schema"')
        return create_model(described_by.__name__.strip("_"), __base__=base, __doc__=summary, **definitions)


def _fields_of(settings: Any) -> dict[str, bool]:
    """Return the fields of a dataclass, and whether each is required."""
    return {field.name: field.default is field.default_factory is MISSING for field in fields(settings)}


def _arguments_of(method: Any) -> dict[str, bool]:
    """Return the arguments of a method, and whether each is required."""
    _, *parameters = inspect.signature(method).parameters.values()
    return {parameter.name: parameter.default is inspect.Parameter.empty for parameter in parameters}


def _keys_of(settings: Any) -> dict[str, Any]:
    """Return the classes of the keys of those fields that are mappings with known ones."""
    return {field.name: field.metadata.get("keys") for field in fields(settings)} if is_dataclass(settings) else {}


def _hints_of(settings: Any, names: Collection[str]) -> dict[str, Any]:
    # In a document, an expression is a SQL text.
    ours = {"SchemaLike": SchemaText, "SparkSession": Any, "Expr": str}
    if isinstance(settings, type):
        return get_type_hints(settings, localns=ours, include_extras=True)
    method = inspect.unwrap(settings)
    # Types of other arguments may be known to type checkers only.
    annotations = {name: method.__annotations__[name] for name in names}
    return get_type_hints(types.SimpleNamespace(__annotations__=annotations), method.__globals__, ours)


def _type_of(hint: Any, keys: Any = None) -> Any:
    """Return the type of a document's field for the annotation of a dataclass' field, and the class of its keys."""
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if keys is not None:
        union: Any = Annotated[model_of(keys), AfterValidator(given)]
        for part in parts:
            union = part | union if get_origin(part) is Literal else union
        return union
    ours = Size if {int, str} <= set(parts) else next((_TYPES[part] for part in _TYPES if part in parts), None)
    if ours is None:
        return hint
    return ours | None if types.NoneType in parts else ours


def descriptions(settings: Any) -> dict[str, str]:
    """Return what the docstring of a class, of its ``with_…`` methods, or of a method, says about each setting.

    Example:
        >>> from volley import IcebergSinkConfig
        >>> descriptions(IcebergSinkConfig)["max_records"]
        'Set the maximum number of rows per data file; None (the default) = only the size limits a file.'
    """
    described = {
        name.removeprefix("with_"): (inspect.getdoc(method) or "").partition("\n\n")[0].replace("\n", " ")
        for name, method in vars(settings).items()
        if name.startswith("with_")
    }
    for base in reversed(getattr(settings, "__mro__", (settings,))):
        text = (inspect.getdoc(base) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
        for name, description in re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", text, re.MULTILINE):
            described[name] = re.sub(r"\s+", " ", description)
    return described
