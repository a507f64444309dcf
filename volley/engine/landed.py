"""Remembers beside a checkpoint how far each target was, so that one that was set back is noticed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from volley.errors import StorageError
from volley.sink import Committer
from volley.spark.log import SparkLog, usable
from volley.storage.durable import write_durably

__all__ = ["Landed"]


class Landed:
    """The last epoch that each target was seen to have, by the target's identity.

    An epoch without rows leaves no mark, so the checkpoint alone can't tell which epochs a target must have. Written
    when a run ends well, not in every epoch: it costs as much as a commit's own mark.

    Args:
        log: The log of the job's query, in whose checkpoint it is kept.
    """

    def __init__(self, log: SparkLog) -> None:
        self._log = log
        self._path = f"{log.root}/volley/landed.json"
        self._kept = self._read()
        self._seen = dict(self._kept)

    def check(self, committer: Committer, last: int | None) -> None:
        """Check that a target still has the last epoch that it was seen to have.

        Args:
            committer: The target's committer.
            last: The last epoch of the query that it has now.

        Raises:
            StorageError: If it has fewer epochs than before.
        """
        identity = committer.identity
        before = None if identity is None else self._seen.get(identity)
        if before is not None and (last is None or last < before):
            raise StorageError(
                f"{committer} had epoch {before} of this job and now has "
                f"{'none' if last is None else f'none after {last}'}: it is an old copy, or has lost its marks, and "
                "the rows of the epochs between may be missing",
                hint='restore its newest copy; or start over: fresh=True, into="replace"',
            )
        if identity is not None and last is not None:
            self._seen[identity] = last

    def remember(self, committers: Sequence[Committer], query_id: str) -> None:
        """Keep how far the targets are now.

        Raises:
            VolleyError: If a target does not say, or the checkpoint can't be written.
        """
        for committer in committers:
            if committer.identity is not None:
                self.check(committer, committer.last_epoch(query_id))
        if self._seen != self._kept:
            with usable(self._log.checkpoint):
                write_durably(self._log.files, self._path, json.dumps(self._seen).encode())
            self._kept = dict(self._seen)

    def _read(self) -> dict[str, int]:
        """What was kept; nothing if it is damaged, as everything works without it."""
        with usable(self._log.checkpoint):
            try:
                found = json.loads(self._log.files.cat_file(self._path))
            except (FileNotFoundError, ValueError):
                return {}
        return {str(name): int(epoch) for name, epoch in found.items()} if isinstance(found, dict) else {}
