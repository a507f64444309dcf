"""Asks a REST catalog to plan scans: https://iceberg.apache.org/rest-catalog-spec, planTableScan and fetchScanTasks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import quote

from pyiceberg.io import FileIO

from volley.errors import CatalogError, ConfigError

__all__ = ["check_planned_here", "is_planned_by_server", "scan_tasks"]

_MODE = "scan-planning-mode"
# A catalog may answer that it still plans: from a tenth of a second to five between two questions, for ten minutes.
_FIRST_WAIT, _LONGEST_WAIT, _LONGEST_PLAN = 0.1, 5.0, 600.0

Method = Literal["GET", "POST", "DELETE"]
Send = Callable[[Method, str, Mapping[str, Any] | None], dict[str, Any]]
"""Sends a request to a path below a table's address, and returns the JSON of the answer."""


def is_planned_by_server(io: FileIO) -> bool:
    """Return True if the catalog that gave a table has to plan its scans: rows may be hidden from other plans."""
    return str(io.properties.get(_MODE, "")).lower() == "server"


def check_planned_here(io: FileIO, place: str) -> None:
    """Raise ConfigError if the manifests of a table may not be read."""
    if is_planned_by_server(io):
        raise ConfigError(
            f"{place} can't be read: the catalog has to plan the scans of this table ({_MODE}=server), and what is "
            "asked for needs the table's own list of files",
            hint="rows of snapshots and appended rows can be read; to change rows, follow changes or maintain files, "
            "ask who runs the catalog to let this table be planned by clients",
        )


def scan_tasks(send: Send, name: str, request: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str | None]:
    """Return all parts of a catalog's plan of a scan, each with its tasks and delete files, and the plan's id.

    The first part may have credentials for the files of all.

    A plan that is given up is cancelled.

    Args:
        name: The table's, for messages.
        request: The body of planTableScan.

    Raises:
        CatalogError: If the catalog fails to plan, or does not end.
    """
    answer = send("POST", "plan", request)
    plan_id = answer.get("plan-id")
    try:
        parts = [_completed(send, name, answer)]
        waiting = deque(parts[0].get("plan-tasks") or ())
        while waiting:
            parts.append(send("POST", "tasks", {"plan-task": waiting.popleft()}))
            waiting.extend(parts[-1].get("plan-tasks") or ())
    except BaseException:
        if plan_id is not None:
            with suppress(Exception):  # it is given up anyway
                send("DELETE", _path(plan_id), None)
        raise
    return parts, plan_id


def _path(plan_id: str) -> str:
    return f"plan/{quote(plan_id, safe='')}"


def _completed(send: Send, name: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the plan, once the catalog has made it."""
    plan_id, wait, until = answer.get("plan-id"), _FIRST_WAIT, time.monotonic() + _LONGEST_PLAN
    while answer.get("status") == "submitted" and plan_id is not None and time.monotonic() < until:
        time.sleep(wait)
        wait = min(2 * wait, _LONGEST_WAIT)
        answer = send("GET", _path(plan_id), None)
    if answer.get("status") == "completed":
        return answer
    reason = (answer.get("error") or {}).get("message") or "no reason is told"
    raise CatalogError(
        f"the catalog has not planned the scan of table {name}: its plan is {answer.get('status')!r} ({reason})",
        hint="start again; if it stays so, ask who runs the catalog",
    )
