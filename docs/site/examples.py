"""Shows the part "Example:" of docstrings as code: griffe itself knows "Examples:" alone."""

from __future__ import annotations

from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the part before a docstring is parsed."""

    def on_object(self, *, obj: griffe.Object, **more: Any) -> None:
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
