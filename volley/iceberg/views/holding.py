"""Keeps the snapshots of a view's sources from expiring that the next refresh needs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta

from volley.errors import VolleyError
from volley.iceberg.commit.hold import Hold, hold_name
from volley.iceberg.views.scan import Scan
from volley.iceberg.views.values import View

__all__ = ["hold_sources"]

_log = logging.getLogger(__name__)


def hold_sources(view: View, scans: Iterable[Scan]) -> None:
    """Move the view's tag in each source that asks for it to the snapshot that the view stands for.

    Called after the refresh is committed: a tag that could not be moved holds more snapshots than needed.

    Args:
        view: The view.
        scans: Its sources, as the refresh has read them.
    """
    tag = hold_name(f"{view.config.ref.address} {view.config.ref.name}")
    for scan in scans:
        max_age, held = scan.config.hold, scan.pin.table.metadata.refs.get(tag)
        if not isinstance(max_age, timedelta) or (held is not None and held.snapshot_id == scan.pin.after):
            continue
        try:
            Hold(scan.config.ref, tag, max_age)(scan.pin.after)
        except VolleyError as error:
            text = "view %s: snapshots of %s may expire before its next refresh: %s"
            _log.warning(text, view.name, scan.config.ref.name, error.message)
