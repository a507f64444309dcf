"""Warns once of each field that is in no column of a source, and remembers them for the job's readiness."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from volley.epoch import WriteResult
from volley.unknown_fields import UnknownField

__all__ = ["UnknownFields"]

_log = logging.getLogger(__name__)
_MOST = 1_000


@dataclass
class UnknownFields:
    """What the tasks of a run have noted.

    Args:
        job: The job's name.
    """

    job: str
    _fields: dict[str, UnknownField] = field(default_factory=dict)

    def record(self, tasks: Iterable[Sequence[WriteResult]]) -> None:
        """Warn of the fields that no earlier task has noted; of the first thousand names, as input may have any."""
        for unknown in (unknown for results in tasks for result in results for unknown in result.unknown):
            if unknown.name not in self._fields and len(self._fields) < _MOST:
                self._fields[unknown.name] = unknown
                ways = '"keep" or "drop"' if unknown.can_keep else '"drop"'
                text = "%s: %s; its values are left out: declare it in the schema, or choose on_unknown=%s"
                _log.warning(text, self.job, unknown, ways)

    @property
    def notes(self) -> Sequence[str]:
        """A line for each field."""
        return [f"{unknown}; its values are left out" for unknown in self._fields.values()]
