"""Takes values that don't fit their column out of a JSON object, and keeps them as JSON beside its unknown fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

import pyarrow as pa

from volley.errors import SourceError
from volley.formats.json import parsed
from volley.formats.json_faults import ObjectCheck, is_odd, oddity_in
from volley.formats.json_objects import Fields, encoded, fields_of, rest_of

__all__ = ["Rescue", "Rescued"]

_ERRORS = (pa.ArrowException, SourceError)


class Rescued(NamedTuple):
    """An object whose fields all fit, and its other fields as JSON."""

    fields: Fields
    text: bytes
    rest: str


class Rescue:
    """Rescues objects; what becomes of one depends on nothing but its text and the schema.

    Args:
        schema: The columns, without the one for other fields.
        epoch: The unit of numbers that are timestamps; None = there are none.
        refuses: True: a value with a field that its column lacks does not fit.
    """

    def __init__(self, schema: pa.Schema, epoch: str | None, refuses: bool = False) -> None:
        self._schema, self._epoch = schema, epoch
        self._columns = {field.name: pa.schema([field]) for field in schema}
        self._unexpected = "error" if refuses else "ignore"
        self._check = ObjectCheck(schema, "fail" if refuses else "keep", (), epoch)

    def rescue(self, text: bytes) -> Rescued | None:
        """Return a bad object without the values that make it bad; None if it is bad for another reason.

        A field whose name is there twice does not fit, and one in which a value within does not fit goes as a whole.
        """
        fields = fields_of(text)
        names = self.fitting(fields)
        fitting = tuple(pair for pair in fields if pair[0] in names)
        others = tuple(pair for pair in fields if pair[0] not in names)
        if not any(name in self._columns for name, _ in others) or oddity_in(others):
            return None
        try:
            rest = rest_of(fields, names)
        except _ERRORS:
            return None
        new = encoded(fitting).encode()
        return Rescued(fitting, new, rest) if rest and self.fits(new) else None

    def fitting(self, fields: Fields) -> Collection[str]:
        """Return the names of the columns that have a value that fits."""
        counts = Counter(name for name, _ in fields)
        likely = {
            pair[0]: encoded((pair,)).encode() for pair in fields if pair[0] in self._columns and counts[pair[0]] == 1
        }
        likely = {name: text for name, text in likely.items() if not self._check.fault(fields_of(text), is_odd(text))}
        if self._fits(encoded(tuple(pair for pair in fields if pair[0] in likely)).encode(), self._schema):
            return likely.keys()
        return {name for name, text in likely.items() if self._fits(text, self._columns[name])}

    def fits(self, text: bytes) -> bool:
        """Return True if objects have nothing but what fits."""
        return self._fits(text, self._schema)

    def _fits(self, text: bytes, schema: pa.Schema) -> bool:
        try:
            parsed(text, schema, self._unexpected, (), self._epoch)
        except _ERRORS:
            return False
        return True
