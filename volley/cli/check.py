"""The command check: looks at a file, and really reaches what its pipelines need."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from volley.cli.output import (
    DEFAULT,
    UNREACHABLE,
    WRONG,
    WRONG_FILE,
    AsJson,
    File,
    choose,
    error,
    print_json,
    print_rows,
)
from volley.config.load import check_file
from volley.config.values import Config, ConfiguredBranch, ConfiguredPipeline, ConfiguredView
from volley.contracts.reports import Probe
from volley.contracts.sink import Sink
from volley.documents.mistakes import Mistake, dotted, error_of
from volley.errors import PlanError, TableNotFoundError, VolleyError
from volley.iceberg.sink import IcebergSink
from volley.secrets import redact
from volley.spark.java import find_java, java_version
from volley.storage.paths import write_and_delete

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check"]

# Sources first, then sinks, which need the columns: both together end within half a minute.
_SOURCE_SECONDS = 13.0
_SINK_SECONDS = 14.0
_LATE = "check the address, the network between, and whether this machine is busy"
_BUSY = "what came before it took all of the time: check again while the machine is less busy, or one --sink at a time"


@dataclass(frozen=True)
class Finding:
    """What a probe found.

    Args:
        part: The source, sink or pipeline.
        status: ``"ok"``, ``"failed"`` or ``"skipped"``.
        of_file: True if the file is wrong: it names a column, say, that is not there.
    """

    part: str
    probe: str
    status: str
    detail: str
    hint: str | None = None
    seconds: float = 0.0
    of_file: bool = False


def check(
    file: File = DEFAULT,
    sink: Annotated[str | None, typer.Option(metavar="NAME", help="Only this sink, and what leads to it.")] = None,
    commit: Annotated[
        bool, typer.Option("--commit", help="Commit to a new branch of each table, too, and remove the branch.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Look at the file only; reach nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check a file and whether everything that it needs can be used.

    Reads from each source, computes the columns of each pipeline, and looks at each sink: of a table, at catalog,
    namespace, table and schema, and at the storage by a file that is written, read and deleted; and for a Java that
    Spark runs on. With --commit, it also commits a snapshot without rows to a branch of its own, which it removes.
    Nothing is left behind. Takes at most half a minute.

    Exit codes: 0 all is fine, 69 something can't be reached or used, 78 nothing but the file is wrong: it has mistakes,
    or names columns that are not there.

    Examples:

      volley check

      volley check -c orders.yaml --sink lake --commit

      volley check --offline --json
    """
    try:
        config, mistakes, secrets = check_file(file, columns=offline)
    except VolleyError as problem:
        # A package is missing.
        config, mistakes, secrets = None, [Mistake(problem.message, (), problem.hint)], set()
    if config is None or mistakes:
        _print_mistakes(str(file), mistakes, secrets, as_json)
        raise typer.Exit(WRONG_FILE)
    if sink is not None:
        choose("sink", sink, list(config.sinks))
    findings = [] if offline else _findings(config, sink, commit)
    failed = [finding for finding in findings if finding.status == "failed"]
    if as_json:
        values = [asdict(finding) for finding in findings]
        print_json({"ok": not failed, "mistakes": [], "warnings": config.warnings, "checks": values}, config)
    else:
        _print(config, findings)
    if failed:
        raise typer.Exit(WRONG_FILE if all(finding.of_file for finding in failed) else UNREACHABLE)


def _print_mistakes(file: str, mistakes: Sequence[Mistake], secrets: set[str], as_json: bool) -> None:
    if not as_json:
        error(redact(str(error_of(file, mistakes)), secrets))
        return
    listed = [
        {
            "line": mistake.place and mistake.place.line,
            "column": mistake.place and mistake.place.column,
            "path": dotted(mistake.path),
            "message": redact(mistake.message, secrets),
            "hint": mistake.hint and redact(mistake.hint, secrets),
        }
        for mistake in mistakes
    ]
    print_json({"ok": False, "mistakes": listed, "warnings": [], "checks": []})


def _print(config: Config, findings: Sequence[Finding]) -> None:
    for warning in config.warnings:
        error(f"{config.file}: warning: {warning}")
    count = len(config.pipelines)
    print(f"{config.file}: no mistakes, {count} {'pipeline' if count == 1 else 'pipelines'}\n")
    rows = [
        (finding.part, finding.probe, finding.status, finding.detail, f"{finding.seconds:.1f} s")
        for finding in findings
    ]
    if rows:
        print_rows(["part", "check", "status", "found", "time"], rows, config)
    for finding in findings:
        if finding.hint:
            print(config.redact(f"\n{finding.part}, {finding.probe}: {finding.detail}\n  hint: {finding.hint}"))


def _findings(config: Config, sink: str | None, commits: bool) -> list[Finding]:
    """Look at everything, or at one sink and what leads to it."""
    pipelines = [part for part in config.pipelines.values() if (part.enabled if sink is None else sink in part.sinks)]
    views = [part for part in config.views.values() if (part.enabled if sink is None else sink == part.sink)]
    listed = [part.sources for part in pipelines] + [part.sources for part in views]
    sources = config.sources if sink is None else dict.fromkeys(name for names in listed for name in names)
    schemas: dict[str, pa.Schema] = {}
    parts = {f"source {name}": _made_later(config, [name], config.sources[name].probes()) for name in sources}
    for part in pipelines:
        parts[f"pipeline {part.name}"] = _made_later(config, part.sources, _columns(part, schemas), but=part.name)
    for view in views:
        parts[f"view {view.name}"] = _made_later(config, view.sources, [_query(view)], but=view.name)
    parts["checkpoints"] = [_checkpoints(config)]
    parts["spark"] = [Probe("java", _java)]
    findings = list(_probe_all(parts, _SOURCE_SECONDS))
    names = config.sinks if sink is None else [sink]
    looks = {f"sink {name}": _sink_probes(config.sinks[name], schemas.get(name), commits) for name in names}
    return [*findings, *_probe_all(looks, _SINK_SECONDS)]


def _made_later(
    config: Config, sources: Sequence[str], probes: Sequence[Probe], but: str | None = None
) -> Sequence[Probe]:
    """Return probes for which a table may be missing that the file makes.

    Args:
        sources: The names of the sources that the probes read: one whose table nobody makes fails by its own probe.
        but: The pipeline or view whose probes they are: it needs the table before it could make it.
    """
    makers = config.makers(sources, but)
    return [replace(probe, run=partial(_look_before, makers, probe)) for probe in probes] if makers else probes


def _look_before(makers: Collection[str], probe: Probe) -> str:
    try:
        return probe.run()
    except TableNotFoundError:
        return f"the table does not exist yet: {' or '.join(sorted(makers))} will create it"


def _columns(pipeline: ConfiguredPipeline, schemas: dict[str, pa.Schema]) -> list[Probe]:
    """Return the probes that compute the columns of a pipeline, and keep them for its sinks."""
    return [Probe("columns", partial(_keep_columns, branch, schemas)) for branch in pipeline.branches]


def _keep_columns(branch: ConfiguredBranch, schemas: dict[str, pa.Schema]) -> str:
    try:
        schema = branch.stream.schema
    except PlanError as problem:
        return f"not known before the job runs: {problem.message}"
    schemas.update(dict.fromkeys(branch.sinks, schema))
    return ", ".join(schema.names)


def _query(view: ConfiguredView) -> Probe:
    return Probe("query", lambda: str(view.view.explain()).partition("\n")[0])


def _sink_probes(sink: Sink, schema: pa.Schema | None, commits: bool) -> Sequence[Probe]:
    if commits and isinstance(sink, IcebergSink):
        from volley.iceberg.commit.probes import table_probes

        return table_probes(sink.config, schema, commits=True)
    return sink.probes(schema)


def _java() -> str:
    home = find_java()
    return f"version {java_version(home)} in {home}"


def _checkpoints(config: Config) -> Probe:
    folder = config.checkpoint("any").rpartition("/")[0]
    return Probe("storage", lambda: write_and_delete(folder, {}))


def _probe_all(parts: dict[str, Sequence[Probe]], seconds: float) -> Iterator[Finding]:
    """Yield the findings of all parts, which are looked at at the same time; each has so many seconds."""
    began = time.monotonic()
    runs = [_PartRun(part, probes) for part, probes in parts.items()]
    for run in runs:
        yield from run.findings(began + seconds)


class _PartRun:
    """Looks at one part, in a thread that nothing waits for when it hangs.

    Args:
        probes: Its probes; after the first that fails, the others are skipped.
    """

    def __init__(self, part: str, probes: Sequence[Probe]) -> None:
        self._part = part
        self._probes = probes
        self._results: list[Future[Finding]] = [Future() for _ in probes]
        self._began: dict[str, float] = {}
        threading.Thread(target=self._run, name=f"check-{part}", daemon=True).start()

    def findings(self, deadline: float) -> Iterator[Finding]:
        """Yield a finding for each probe, at this time at the latest."""
        failed = False
        for probe, result in zip(self._probes, self._results, strict=True):
            try:
                finding = result.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                finding = Finding(self._part, probe.name, "skipped", "") if failed else self._late(probe)
            failed = failed or finding.status == "failed"
            yield finding

    def _late(self, probe: Probe) -> Finding:
        """Return the finding of a probe that has not ended: it did not begin where others or the CPU held it up."""
        began = self._began.get(probe.name)
        if began is None:
            return Finding(self._part, probe.name, "failed", "not looked at in time", _BUSY)
        return Finding(self._part, probe.name, "failed", "no answer in time", _LATE, time.monotonic() - began)

    def _run(self) -> None:
        failed = False
        for probe, result in zip(self._probes, self._results, strict=True):
            finding = Finding(self._part, probe.name, "skipped", "") if failed else self._look(probe)
            failed = failed or finding.status == "failed"
            result.set_result(finding)

    def _look(self, probe: Probe) -> Finding:
        began = self._began[probe.name] = time.monotonic()
        status, hint, of_file = "ok", None, False
        try:
            detail = probe.run()
        except VolleyError as problem:
            place = "" if problem.place is None else f"{problem.place}: "
            status, detail, hint = "failed", place + problem.message, problem.hint
            of_file = isinstance(problem, WRONG)
        except Exception as problem:
            status, detail = "failed", f"{type(problem).__name__}: {problem}"
        return Finding(self._part, probe.name, status, detail, hint, time.monotonic() - began, of_file)
