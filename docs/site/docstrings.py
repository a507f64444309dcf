"""Shows the part "Example:" of docstrings as code, and what methods take that take a value's fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the part "Example:" before a docstring is parsed: griffe itself knows "Examples:" alone."""

    def on_object(self, *, obj: griffe.Object, **more: Any) -> None:
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")


class Options(griffe.Extension):
    """Gives the methods below ``@takes(options)`` the fields of the options and their descriptions."""

    def on_package(self, *, pkg: griffe.Module, **more: Any) -> None:
        for method in _functions(pkg):
            for decorator in method.decorators:
                if str(decorator.value).startswith("takes("):
                    _take(method, pkg.modules_collection[method.resolve(str(decorator.value)[6:-1])])


def _functions(scope: griffe.Module | griffe.Class) -> Iterator[griffe.Function]:
    for member in scope.members.values():
        if isinstance(member, griffe.Function):
            yield member
        elif isinstance(member, griffe.Module | griffe.Class):
            yield from _functions(member)


def _take(method: griffe.Function, options: Any) -> None:
    # griffe's own parameters of a dataclass are made later than this.
    kind, fields = griffe.ParameterKind.positional_or_keyword, []
    for name, member in options.attributes.items():
        if name == "_":
            kind = griffe.ParameterKind.keyword_only
        elif member.annotation is not None:
            fields.append(griffe.Parameter(name, annotation=member.annotation, kind=kind, default=member.value))
    method.parameters = griffe.Parameters(method.parameters[0], *fields)
    if method.docstring:
        arguments = options.docstring.value.partition("\nArgs:\n")[2].partition("\n\n")[0]
        method.docstring.value = method.docstring.value.replace("\nRaises:\n", f"\nArgs:\n{arguments}\n\nRaises:\n", 1)
