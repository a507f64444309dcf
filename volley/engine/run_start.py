"""Records in the checkpoint with which epoch a bounded run began, so that a run that died goes on as the same run."""

from __future__ import annotations

from volley.spark.log import SparkLog, usable
from volley.storage.durable import write_durably
from volley.storage.remembered import MALFORMED, malformed
from volley.storage.state_formats import RUN

__all__ = ["RunStart"]


class RunStart:
    """The first epoch of a bounded run. A run ends when it has read what its sources had, without a failure.

    Args:
        log: Spark's log of the query, whose checkpoint also holds this record.
    """

    def __init__(self, log: SparkLog) -> None:
        self._log = log
        self._path = f"{log.root}/volley/run.json"

    def begin(self) -> int:
        """Return the first epoch of the run that did not end, or of a new one.

        Raises:
            StorageError: If the checkpoint can't be read or written, or the record is damaged.
        """
        first = self._unended()
        if first is None:
            last = self._log.last_finished
            first = 0 if last is None else last + 1
            self._write({"first": first, "ended": False})
        return first

    def end(self, first: int) -> None:
        """Record that the run has ended: the next one is another run.

        Raises:
            StorageError: If the checkpoint can't be written.
        """
        self._write({"first": first, "ended": True})

    def _unended(self) -> int | None:
        with usable(self._log.checkpoint):
            try:
                record = RUN.load(self._log.files.cat_file(self._path), self._path)
                return None if record["ended"] else int(record["first"])
            except FileNotFoundError:
                return None
            except MALFORMED as error:
                raise malformed(self._path, error) from error

    def _write(self, record: dict[str, object]) -> None:
        with usable(self._log.checkpoint):
            write_durably(self._log.files, self._path, RUN.dump(record))
