"""CaptureSource: the settings and checks that the sources which capture a database share."""

from __future__ import annotations

from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any, Literal

from volley.capture.selection import Selection, table_names
from volley.checks import count, duration, flag, keep, mapping, one_of, optional, size
from volley.contracts.reports import Probe
from volley.contracts.source import Source, SourceContext
from volley.errors import ConfigError
from volley.secrets import redacted_html, redacted_repr

__all__ = ["CaptureSource"]


class CaptureSource(Source):
    """Captures tables: their rows first, then every change; the fields are those of each such source."""

    tables: str | Sequence[str] | None
    exclude: str | Sequence[str] | None
    packed: bool | None
    load: Literal["snapshot", "none"]
    changelog: bool
    sequence: bool
    bounded: bool
    on_rewrite: Literal["stop", "reload", "ignore"]
    unrepresentable: Literal["fail", "null"]
    max_staged: int | str

    def __post_init__(self) -> None:
        keep(self, tables=optional(table_names), exclude=optional(table_names), packed=optional(flag))
        keep(self, load=one_of(("snapshot", "none")), on_rewrite=one_of(("stop", "reload", "ignore")))
        keep(self, changelog=flag, bounded=flag, sequence=flag)
        keep(self, unrepresentable=one_of(("fail", "null")), max_staged=size, timeout=duration, options=mapping)
        keep(self, max_segments_per_epoch=optional(count))
        # Tables that exclude each other are refused.
        selection = self._selection
        if self.packed is False and selection.only is None:
            raise ConfigError("packed is False, and tables are several", hint="rows of several tables are packed")
        if self.on_rewrite == "reload" and self.load == "none":
            raise ConfigError('on_rewrite="reload" with load="none"', hint='load="snapshot", or on_rewrite="stop"')
        if self.sequence and self.on_rewrite == "reload":
            raise ConfigError(
                'on_rewrite="reload" with sequence=True: the rows of a reload have no place in the log',
                hint='on_rewrite="stop", or leave sequence out',
            )
        if self.sequence and self.changelog:
            raise ConfigError("changelog and sequence are both True", hint="a changelog has lsn and seq: leave it out")

    @property
    def _selection(self) -> Selection:
        return Selection.of(self.tables or (), self.exclude or ())

    @property
    def _is_packed(self) -> bool:
        return bool(self.packed) or self._selection.only is None

    @property
    def _rows(self) -> str:
        """What is read, for an identity: without the names of several tables, as there may be more of them later."""
        return "*" if self._is_packed else str(self._selection.only)

    def probes(self) -> Sequence[Probe]:
        # Opening looks at server, rights and tables; only a job's start keeps or makes anything.
        return [Probe("source", self._look)]

    def _look(self) -> str:
        with TemporaryDirectory(prefix="volley-") as state:
            self.open(SourceContext(state))
        return f"{self._selection} can be captured"

    __repr__ = redacted_repr
    _repr_html_ = redacted_html

    def _captured(self, context: SourceContext) -> dict[str, Any]:
        """Return the arguments of a `Capture` that all have."""
        return {
            "selection": self._selection,
            "packed": self._is_packed,
            "loads": self.load == "snapshot",
            "nulls": self.unrepresentable == "null",
            "on_rewrite": self.on_rewrite,
            "changelog": self.changelog,
            "sequence": self.sequence,
            "bounded": self.bounded,
            "max_staged": int(self.max_staged),
            "state": context.state,
        }
