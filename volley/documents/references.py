"""References in values: ``${NAME}``, ``${NAME:-default}``, ``${NAME:?message}``, ``${file:PATH}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["References", "UnresolvedReference", "is_reference"]

_REFERENCE = re.compile(r"\$\$|\$\{([^}]*)\}")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)(?:(:-|:\?)(.*))?", re.DOTALL)
_WITHOUT_DEFAULT = re.compile(r"\$\{(?:file:[^}]*|[A-Za-z_]\w*(?::\?[^}]*)?)\}")
# A shorter text is no secret, and would mask parts of other words.
_SHORTEST_SECRET = 4


def is_reference(text: str) -> bool:
    """Return True if a text is one reference without a default: nothing of its value stands in the text.

    Example:
        >>> is_reference("${PASSWORD}"), is_reference("${PASSWORD:-hunter2}"), is_reference("pa$$word")
        (True, False, False)
    """
    return _WITHOUT_DEFAULT.fullmatch(text) is not None


class UnresolvedReference(Exception):
    """A reference that has no value."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


@dataclass
class References:
    """Puts values of the environment and of files into texts, and remembers them as secrets. ``$$`` is a ``$``.

    Args:
        folder: The folder that paths of files are relative to.
        secrets: The values that were put in: messages must not show them.

    Example:
        >>> references = References({"HOST": "db.internal"})
        >>> references.resolve("${HOST}:${PORT:-5432}, $$5"), references.secrets
        ('db.internal:5432, $5', {'db.internal'})
    """

    variables: Mapping[str, str]
    folder: Path = field(default_factory=Path)
    secrets: set[str] = field(default_factory=set, repr=False)

    def resolve(self, text: str) -> str:
        """Return the text with its references replaced.

        Raises:
            UnresolvedReference: If a variable is not set, a file can't be read, or a reference is malformed.
        """
        return _REFERENCE.sub(lambda match: "$" if match[1] is None else self._value(match[1]), text)

    def _value(self, reference: str) -> str:
        if "${" in reference:
            raise UnresolvedReference(f"'${{{reference}' has a reference inside it", "put the default down as text")
        if reference.startswith("file:"):
            return self._secret(self._content(reference.removeprefix("file:")))
        variable = _VARIABLE.fullmatch(reference)
        if variable is None:
            raise UnresolvedReference(
                f"'${{{reference}}}' is no reference",
                "${NAME}, ${NAME:-default}, ${NAME:?message} or ${file:PATH}; $$ is a plain $",
            )
        name, operator, rest = variable.groups()
        value = self.variables.get(name)
        if value is not None and (value or operator is None):
            return self._secret(value)
        if operator == ":-":
            return str(rest)
        reason = f": {rest}" if rest else ""
        raise UnresolvedReference(
            f"environment variable {name} is not set{reason}", f"export {name}=…, or give a default: ${{{name}:-…}}"
        )

    def _content(self, path: str) -> str:
        try:
            return (self.folder / path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise UnresolvedReference(
                f"file {path} can't be read: {reason}", "check the path and who may read it"
            ) from None

    def _secret(self, value: str) -> str:
        if len(value.strip()) >= _SHORTEST_SECRET:
            self.secrets.add(value)
        return value
