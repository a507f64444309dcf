"""What stands in a checkpoint: the pipeline that it is bound to, and how far Spark has planned and finished."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from volley import _plan
from volley.errors import PlanError, StorageError
from volley.source import Offset, Split, SplitSource

__all__ = ["PlannedEpochs", "bind", "bind_targets", "locate", "unfinished_epoch"]

_FILE = "volley/pipeline.json"
_TARGETS = "volley/targets.json"
_OFFSETS = "v1"


def locate(checkpoint_dir: str | None, job: str) -> str:
    """The checkpoint folder of a job as an absolute path or URL.

    Args:
        checkpoint_dir: The folder that holds the checkpoints of all jobs; None = ``.volley/checkpoints``.
        job: The job's name; characters that don't belong in a file name are escaped.
    """
    from pathlib import Path

    name = quote(job, safe=" ")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if checkpoint_dir and "://" in checkpoint_dir:
        return f"{checkpoint_dir.rstrip('/')}/{name}"
    return str(Path(checkpoint_dir or ".volley/checkpoints").absolute() / name)


def bind(checkpoint: str, plan: _plan.Node) -> None:
    """Bind a new checkpoint to this plan, or check that an old one began with the same.

    Steps that keep no state may change between two runs. Sources and stateful steps may not: the offsets and
    the state in the checkpoint mean nothing to others.

    Raises:
        PlanError: If the checkpoint belongs to another pipeline; says what differs.
        StorageError: If the checkpoint folder can't be read or written.
    """
    import fsspec

    pipeline = _pipeline(plan)
    with _usable(checkpoint):
        files, root = fsspec.core.url_to_fs(checkpoint)
        if files.exists(f"{root}/{_FILE}"):
            _compare(json.loads(files.cat_file(f"{root}/{_FILE}")), pipeline, checkpoint)
        elif files.exists(f"{root}/metadata"):
            raise PlanError(
                f"checkpoint {checkpoint} was not made by Volley", hint="give the job another checkpoint_dir or name"
            )
        else:
            files.makedirs(f"{root}/volley", exist_ok=True)
            files.pipe_file(f"{root}/{_FILE}", json.dumps(pipeline, indent=2).encode())


def bind_targets(checkpoint: str, targets: Iterable[tuple[str, str] | None]) -> None:
    """Bind the checkpoint to what its sinks write to, or check that those of the same name are still the same.

    Sinks may come and go. But a table that was dropped and made again has none of the rows before: a job that went on
    from its checkpoint would leave them out without a word.

    Args:
        checkpoint: The checkpoint's folder.
        targets: Of each sink its `Committer.target`.

    Raises:
        PlanError: If a target is another one than when the checkpoint was begun.
        StorageError: If the checkpoint folder can't be read or written.
    """
    import fsspec

    with _usable(checkpoint):
        files, root = fsspec.core.url_to_fs(checkpoint)
        path = f"{root}/{_TARGETS}"
        known = json.loads(files.cat_file(path)) if files.exists(path) else {}
        now = dict(target for target in targets if target is not None)
        for name, identity in now.items():
            if known.get(name, identity) != identity:
                raise PlanError(
                    f"{name} was dropped and made again since checkpoint {checkpoint} was begun: rows read before that "
                    f"are not in it (its id was {known[name]}, now {identity})",
                    hint="start under another job name to fill it from the beginning",
                )
        if known != known | now:
            files.pipe_file(path, json.dumps(known | now, indent=2).encode())


def unfinished_epoch(checkpoint: str) -> int | None:
    """The epoch that Spark has planned but not logged as done: the one in which an earlier run died.

    Raises:
        StorageError: If the checkpoint folder can't be read.
    """
    import fsspec

    with _usable(checkpoint):
        files, root = fsspec.core.url_to_fs(checkpoint)
        begun, done = (_latest(files, f"{root}/{log}") for log in ("offsets", "commits"))
    return begun if begun is not None and (done is None or done < begun) else None


class PlannedEpochs:
    """The splits of each epoch that Spark has planned, by the offsets in its log; for a job with one source.

    Args:
        checkpoint: The checkpoint's folder.
        source: The opened source.
    """

    def __init__(self, checkpoint: str, source: SplitSource) -> None:
        self._checkpoint = checkpoint
        self._source = source
        self._last = -1, source.initial_offset()

    def splits(self, epoch: int) -> list[Split]:
        """What is to be read in this epoch.

        Raises:
            StorageError: If the checkpoint folder can't be read.
            SourceError: If the source does not have these offsets.
        """
        before, start = self._last
        if before != epoch - 1:
            start = self._end(epoch - 1) if epoch else self._source.initial_offset()
        end = self._end(epoch)
        self._last = epoch, end
        return self._source.splits(start, end)

    def _end(self, epoch: int) -> Offset:
        import fsspec

        with _usable(self._checkpoint):
            files, root = fsspec.core.url_to_fs(self._checkpoint)
            # What Spark notes for itself stands behind the version, then a line for each source.
            version, _, *lines = files.cat_file(f"{root}/offsets/{epoch}").decode().splitlines()
            if version != _OFFSETS or len(lines) != 1:
                raise ValueError(f"offsets/{epoch} is not in Spark's form {_OFFSETS} for one source: {version}")
            offset: Offset = json.loads(lines[0])
        return offset


def _latest(files: Any, log: str) -> int | None:
    """The number of the last entry in one of Spark's logs."""
    if not files.exists(log):
        return None
    names = (path.rstrip("/").rpartition("/")[2] for path in files.ls(log, detail=False))
    return max((int(name) for name in names if name.isdigit()), default=None)


@contextmanager
def _usable(checkpoint: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        raise StorageError(
            f"checkpoint folder {checkpoint} can't be used: {error}",
            hint="check that it can be written, or give Environment(checkpoint_dir=...) another one",
        ) from error


def _pipeline(plan: _plan.Node) -> dict[str, Any]:
    return {
        "sources": [source.identity for source in _plan.sources(plan)],
        "stateful": [step.label() for step in _plan.stateful(plan)],
    }


def _compare(old: dict[str, Any], new: dict[str, Any], checkpoint: str) -> None:
    for part, what in (("sources", "sources"), ("stateful", "stateful steps")):
        if old.get(part) != new[part]:
            raise PlanError(
                f"the pipeline's {what} have changed since checkpoint {checkpoint} was begun: "
                f"then {old.get(part)}, now {new[part]}",
                hint="go on with the old pipeline, or start the new one under another job name "
                "(it reads its sources from the beginning)",
            )
