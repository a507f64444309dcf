"""Warns once of each field that is in no column of a source, and remembers them for the job's readiness."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from volley.epoch import WriteResult
from volley.task.unknown_folder import UnknownFolder
from volley.unknown_fields import UnknownField

__all__ = ["UnknownFields"]

_log = logging.getLogger(__name__)
_MOST = 1_000


@dataclass
class UnknownFields:
    """What the tasks of a run have noted.

    Args:
        job: The job's name.
        folders: Where tasks leave what no result of theirs tells.
    """

    job: str
    folders: Sequence[UnknownFolder] = ()
    _fields: dict[str, UnknownField] = field(default_factory=dict)

    def record(self, tasks: Iterable[Sequence[WriteResult]]) -> None:
        """Warn of the fields that no earlier task has noted; of the first thousand names, as input may have any."""
        told = (unknown for results in tasks for result in results for unknown in result.unknown)
        for unknown in chain(told, *map(self._left, self.folders)):
            if unknown.name not in self._fields and len(self._fields) < _MOST:
                self._fields[unknown.name] = unknown
                ways = '"keep" or "drop"' if unknown.can_keep else '"drop"'
                text = "%s: %s; its values are left out: declare it in the schema, or choose on_unknown=%s"
                _log.warning(text, self.job, unknown, ways)

    def _left(self, folder: UnknownFolder) -> Sequence[UnknownField]:
        """Return what tasks have left in a folder; a warning that can't be read fails no job."""
        try:
            return folder.take()
        except Exception as error:
            _log.warning("%s: which fields a source's schema lacks is not known: %s", self.job, error)
            return ()

    @property
    def notes(self) -> Sequence[str]:
        """A line for each field."""
        return [f"{unknown}; its values are left out" for unknown in self._fields.values()]
