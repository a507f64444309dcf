"""What a checkpoint is bound to: the sources, steps and targets that a restarted job must still have."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from volley.errors import PlanError, StorageError
from volley.plan import nodes
from volley.plan.graph import JobGraph
from volley.storage.state_formats import PIPELINE as _FORMAT

__all__ = ["Binding", "check_same_pipeline", "check_targets"]

_log = logging.getLogger(__name__)

# What keyed steps say of their state ends otherwise.
_SPARK_S_STATE = re.compile(r"deduplicate by (?!.*, in \d+ buckets)|limit \d+\b(?!, counted)")


_BUCKETS = re.compile(r", in \d+ buckets(?=$|, for )")


@dataclass(frozen=True)
class Binding:
    """The pipeline that a checkpoint belongs to.

    Args:
        query_id: Spark's id of the query; None if only Spark's own file has it.
        sources: The identity of each source, to which the offsets refer; None = lost.
        stateful: The label of each keyed step, to which the state refers; None = lost. Sources or steps that are
            alike have the names of the sinks behind them, too.
        targets: The name and identity of each sink's target; None = lost.
    """

    query_id: str | None = None
    sources: Sequence[str] | None = None
    stateful: Sequence[str] | None = None
    targets: Mapping[str, str | None] | None = None

    @classmethod
    def of(cls, graph: JobGraph) -> Binding:
        """Return the binding of a new job; targets get their identities once they are open."""
        sources = _told_apart([(read.source.identity, read) for read in graph.reads], graph)
        steps = _told_apart([(step.state, step) for step in graph.keyed], graph)
        return cls(str(uuid.uuid4()), sources, steps, dict.fromkeys(filter(None, graph.targets)))

    @classmethod
    def parse(cls, data: bytes, path: str) -> Binding:
        """Parse the bytes of a ``pipeline.json``.

        Raises:
            ValueError: If they are damaged.
            StorageError: If a newer Volley wrote them.
        """
        values = _FORMAT.load(data, path)
        if not isinstance(values, dict):
            raise ValueError("it is not a JSON object")
        if unknown := sorted(values.keys() - cls.__dataclass_fields__.keys()):
            raise StorageError(
                f"{path} was written by a newer Volley: this one does not know its entries {', '.join(unknown)}",
                hint="upgrade Volley to the version that wrote it, or restore the checkpoint from before the upgrade",
            )
        return cls(**values)

    def to_bytes(self) -> bytes:
        """Return the bytes of a ``pipeline.json``."""
        return _FORMAT.seal(json.dumps(asdict(self), indent=2).encode())


def _told_apart(labels: Sequence[tuple[str, nodes.Node]], graph: JobGraph) -> list[str]:
    """Return labels by which a restarted job finds the offsets or the state of each source or step.

    The sinks of a job may change places, and with them sources or steps that are alike: these are told apart by the
    sinks behind them.
    """
    named = [(label, _sinks_behind(node, graph)) for label, node in labels]
    alike = Counter(label for label, _ in {*named})
    return [label if alike[label] == 1 else f"{label}, for {sinks}" for label, sinks in named]


def _sinks_behind(node: nodes.Node, graph: JobGraph) -> str:
    """Return the names of the sinks behind a node."""
    sinks = [graph.writes[number].sink for number in graph.sinks_behind[id(node)]]
    return " and ".join(sorted(sink.target or sink.label for sink in sinks))


def check_same_pipeline(old: Binding, now: Binding, checkpoint: str) -> None:
    """Raise PlanError if sources or keyed steps have changed, or Spark kept the state of one, as until 0.2.0."""
    if step := next(filter(_SPARK_S_STATE.match, old.stateful or ()), None):
        raise PlanError(
            f"in checkpoint {checkpoint} Spark kept the state of {step}, as Volley 0.2.0 has it; this version keeps "
            "that state itself, and does not read Spark's",
            hint='start over, fresh=True: with into="replace"; or with into="append" and a source that starts where '
            "the rows end. Or end the job by the version that began it",
        )
    for part, before, after in (
        ("sources", old.sources, now.sources),
        ("keyed steps", old.stateful, now.stateful),
    ):
        if before is not None and _without_buckets(before) != _without_buckets(after or ()):
            raise PlanError(
                f"the pipeline's {part} have changed since checkpoint {checkpoint} was begun: "
                f"then {before}, now {after}",
                hint="go on with the old pipeline, or start the new one over with fresh=True or under another job name "
                "(it reads its sources from the beginning)",
            )


def _without_buckets(labels: Sequence[str]) -> list[str]:
    """Return labels without the number of buckets of a state, which can be divided anew."""
    return [_BUCKETS.sub("", label) for label in labels]


def check_targets(old: Mapping[str, object], graph: JobGraph, job: str, checkpoint: str, backfill: bool) -> None:
    """Raise PlanError if a sink has a target that is new, and no backfill fills it; dead letters may change.

    Args:
        old: The names of the targets that the checkpoint is bound to.
        backfill: True if a backfill fills new targets.
    """
    added = sorted(set(filter(None, graph.targets[: len(graph.writes)])) - set(old))
    dropped = sorted(set(old) - set(graph.targets))
    if added and not backfill:
        gone = f" in place of {', '.join(dropped)}" if dropped else ""
        raise PlanError(
            f"job {job!r} writes to {', '.join(added)} now{gone}, where the rows would be missing that were read "
            f"since checkpoint {checkpoint} was begun",
            hint="fill the new target with them: backfill=True, which adds nothing to a table that was only renamed; "
            "or start over: fresh=True; or use another job name",
        )
    if dropped:
        _log.info("%s no longer writes to %s", job, ", ".join(dropped))
