"""Checks the parts of a document and builds values of them; every mistake is collected, none stops the others."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from volley.documents.mistakes import MOST_MISTAKES, Mistake, Path, error_of, is_secret, nearest
from volley.documents.models import Model
from volley.documents.yaml_text import Document
from volley.errors import ConfigError, VolleyError
from volley.secrets import MASK

__all__ = ["Collector"]

M = TypeVar("M", bound=Model)
T = TypeVar("T")

# What is left out may have been in the way of another check.
_MOST_CHECKS = 6
_NOTHING = object()
_TYPES = {
    "string_type": "a text; quote it",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping of names and values",
    "mapping_type": "a mapping of names and values",
    "model_type": "a mapping of names and values",
    "model_attributes_type": "a mapping of names and values",
}


@dataclass
class Collector:
    """Collects the mistakes of a document.

    Args:
        document: The file that the settings come from; None = they come from Python.

    Example:
        >>> class Point(Model):
        ...     x: int
        ...     y: int = 0
        >>> collector = Collector()
        >>> collector.check(Point, {"x": 1, "y": "one", "z": 5})
        Point(x=1, y=0)
        >>> [mistake.message for mistake in collector.mistakes]
        ["y 'one' is not a whole number", "unknown key 'z'"]
    """

    document: Document | None = None
    mistakes: list[Mistake] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.document is not None:
            self.mistakes += self.document.mistakes

    def add(self, path: Path, message: str, hint: str | None = None, of_key: bool = False, shift: int = 0) -> None:
        """Note a mistake, unless the value has one already.

        Args:
            of_key: True: it is about the key, not its value.
            shift: How many characters behind the value's beginning it is.
        """
        if len(self.mistakes) >= MOST_MISTAKES or any(mistake.path == path for mistake in self.mistakes):
            return
        if hint is not None and hint.startswith("did you mean"):
            hint = hint.partition(" known: ")[0]
        place = None
        if self.document is not None:
            place = self.document.place(path, of_key)
            place = self.document.at(place.line - 1, place.column - 1 + shift)
        self.mistakes.append(Mistake(message, path, hint, place))

    def check(self, model: type[M], values: Any, path: Path = ()) -> M | None:
        """Return values as a model; None if it can't be made.

        Settings with mistakes are left out of it, and a text stands for those that are missing, so that the rest can
        be looked at: a further mistake of such a setting is not noted.

        Args:
            values: The settings, by name.
        """
        values = {} if values is None else values
        filled: set[Path] = set()
        for _ in range(_MOST_CHECKS):
            try:
                return model.model_validate(values)
            except ValidationError as error:
                details = error.errors(include_url=False)[:MOST_MISTAKES]
            if not all(detail["loc"] for detail in details):
                self.add(path, f"this is {_shown(values, path)}, not {_TYPES['dict_type']}")
                break
            located = [(_in_document(values, detail), detail) for detail in details]
            for location, detail in located:
                # Of a value that may be of several types, only the mistakes inside it count, if there are any.
                if not any(len(other) > len(location) and other[: len(location)] == location for other, _ in located):
                    self._add_detail(model, path, location, detail)
            for location, detail in located:
                if detail["type"] == "missing":
                    values = _with(values, location)
                    filled.add(location)
                else:
                    values = _without(values, location[:-1] if location in filled and location[1:] else location)
        return None

    def make(
        self,
        build: Callable[..., T],
        arguments: Mapping[str, Any],
        path: Path = (),
        names: Mapping[str, str] | None = None,
        instead: Mapping[str, Any] | None = None,
    ) -> T | None:
        """Build a value; None if its settings have mistakes, of which all are noted that can be found.

        A constructor raises its first mistake. It is laid to the setting that its message names; then that setting is
        left out, to find the next mistake.

        Args:
            names: Arguments that the document calls otherwise, and how.
            instead: What stands for required arguments that have mistakes.
        """
        rest, failed = dict(arguments), False
        while True:
            try:
                value = build(**rest)
                return None if failed else value
            except VolleyError as error:
                name = _named_in(error.message, rest)
                if name is not None or not failed:
                    # A mistake that names no setting may come from what was left out.
                    self.add((*path, *([(names or {}).get(name, name)] if name else [])), error.message, error.hint)
                failed = True
            except TypeError:
                # A required argument was left out, since it had a mistake.
                if not failed:
                    raise
                return None
            if name is None or rest[name] == (instead or {}).get(name, _NOTHING):
                return None
            del rest[name]
            if instead is not None and name in instead:
                rest[name] = instead[name]

    def add_within(self, path: Path, error: VolleyError) -> None:
        """Note an error of the settings at a place, at the one that its message names, or whose value it quotes."""
        settings = reduce(lambda value, key: value[key], path, self.document.value if self.document else {})
        name = _named_in(error.message, settings)
        self.add((*path, *([name] if name else [])), error.message, error.hint)

    def has_mistakes(self, path: Path) -> bool:
        """Return True if there are mistakes at a place of the document, or inside it."""
        return any(mistake.path[: len(path)] == path for mistake in self.mistakes)

    def raise_mistakes(self, name: str) -> None:
        """Raise ConfigError with all mistakes, if there are any."""
        if self.mistakes:
            raise error_of(name, self.mistakes)

    def _add_detail(self, model: type[Model], path: Path, location: Path, detail: ErrorDetails) -> None:
        error_type, name = detail["type"], str(location[-1])
        if error_type == "extra_forbidden":
            hint = nearest(name, _fields_at(model, location[:-1]))
            self.add((*path, *location), f"unknown key {name!r}", hint, of_key=True)
        elif error_type == "missing":
            self.add((*path, *location), f"{name} is missing", _description(model, location))
        elif detail["loc"][-1] == "[key]":
            self.add((*path, *location), f"key {detail['input']!r} is not {_TYPES['string_type']}", of_key=True)
        else:
            self.add((*path, *location), *_in_words((*path, *location), detail))


def _in_words(path: Path, detail: ErrorDetails) -> tuple[str, str | None]:
    """Return the message and the hint of one of pydantic's errors."""
    name = str(path[-1])
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return (cause.message if name in cause.message else f"{name}: {cause.message}"), cause.hint
    value, error_type = detail["input"], detail["type"]
    if error_type == "literal_error":
        expected = re.findall(r"'([^']*)'", str(detail["ctx"]["expected"]))
        return f"{name} {_shown(value, path)} is unknown", nearest(str(value), expected)
    expected_type = _TYPES.get(error_type) or _TYPES.get(error_type.partition("_")[0])
    if expected_type is None:
        return f"{name}: {detail['msg'][:1].lower()}{detail['msg'][1:]}", None
    return f"{name} {_shown(value, path)} is not {expected_type}", None


def _without(values: Any, path: Path) -> Any:
    """Return a copy of values without the one at a path."""
    first, rest = path[0], path[1:]
    if isinstance(values, list) and isinstance(first, int) and first < len(values):
        # The others keep their places.
        return [_without(value, rest) if number == first and rest else value for number, value in enumerate(values)]
    if not isinstance(values, dict) or first not in values:
        return values
    if not rest or not isinstance(values[first], dict | list):
        return {key: value for key, value in values.items() if key != first}
    return {**values, first: _without(values[first], rest)}


def _with(values: Any, path: Path) -> Any:
    """Return a copy of values with a text at a path."""
    first, rest = path[0], path[1:]
    if isinstance(values, list):
        return [_with(value, rest) if number == first and rest else value for number, value in enumerate(values)]
    return {**values, first: _with(values.get(first, {}), rest) if rest else "any"}


def _shown(value: Any, path: Path) -> str:
    if value is None:
        return "empty"
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list) else repr(MASK if is_secret(path) else value)


def _in_document(values: Any, detail: ErrorDetails) -> Path:
    """Return where an error stands: pydantic's location without the names of types that it adds for unions."""
    path: list[Any] = []
    keys: tuple[Any, ...] = detail["loc"]
    for key in keys:
        if isinstance(values, dict):
            # Pydantic tells a key that is a fraction or null as a text.
            key = next((name for name in values if str(name) == key), key)
        if (isinstance(values, dict) and key in values) or (isinstance(values, list) and isinstance(key, int)):
            values = values[key]
            path.append(key)
    return (*path, detail["loc"][-1]) if detail["type"] == "missing" else tuple(path)


def _fields_at(model: type[Model], location: Iterable[object]) -> list[str]:
    """Return the names of the settings that may stand at a place of a model."""
    for key in location:
        field = model.model_fields.get(key) if isinstance(key, str) else None
        model = (field and _model_in(field.annotation)) or model
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[Model] | None:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation
    return next((model for part in typing.get_args(annotation) if (model := _model_in(part))), None)


def _description(model: type[Model], location: Path) -> str | None:
    known = model.model_fields.get(str(location[-1])) if len(location) == 1 else None
    return known.description if known else None


def _named_in(message: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the argument that a message names first, or else the one whose value it quotes."""
    named = (word for word in re.findall(r"\w+", message) if word in arguments)
    quoted = [(text, name) for text in re.findall(r"'([^']+)'", message) for name in arguments]
    whole = (name for text, name in quoted if text == arguments[name] or repr(text) in repr(arguments[name]))
    within = (name for text, name in quoted if text in repr(arguments[name]))
    return next(named, None) or next(whole, None) or next(within, None)
