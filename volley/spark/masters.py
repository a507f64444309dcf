"""Says why Spark's master took no session, from what Spark has logged: its exception says only that it gave up."""

from __future__ import annotations

import re

__all__ = ["refusal"]

_URLS = "a master is local[4], spark://host:7077, yarn or k8s://https://host:port"
_LOCAL_FILES = (
    "make it a folder with room that can be written, or name another one: SPARK_LOCAL_DIRS=/folder for Spark's files, "
    "SPARK_SUBMIT_OPTS=-Djava.io.tmpdir=/folder for Java's"
)
# The first pattern that the log has; what it means, and what to do.
_REFUSALS = (
    (
        r"InvalidClassException|local class incompatible",
        "it runs another version of Spark than this program",
        "install the PySpark of the cluster's version",
    ),
    (
        r"UnknownHostException: ([^\s:]+)",
        "its host {} can't be resolved",
        "check the name in the master's URL, and this machine's DNS",
    ),
    (
        r"Connection refused: (?:[^\s/]*/)?(\S+)",
        "nothing listens at {}: connection refused",
        "check the port, and whether the master runs",
    ),
    (
        r"(?:[Cc]onnection timed out|No route to host|Network is unreachable): (?:[^\s/]*/)?(\S+)",
        "{} does not answer",
        "check the network and firewalls between",
    ),
    (
        r"Failed to create a temp directory \(under ([^)]+)\)",
        "no folder can be made below {}",
        _LOCAL_FILES,
    ),
    (
        r"DiskBlockManager: Failed to create any local dir()",
        "no folder for its local files can be written",
        _LOCAL_FILES,
    ),
    (r"(?:parse Master URL|Invalid master URL|Master must)()", "", _URLS),
)


def refusal(log: str) -> tuple[str, str]:
    """Return what is wrong with a master, and what to do; empty texts if the log does not tell.

    Args:
        log: What Spark has logged, or the text of its exception.

    Example:
        >>> refusal("Caused by: java.net.UnknownHostException: nohost.example")
        ("its host nohost.example can't be resolved", "check the name in the master's URL, and this machine's DNS")
        >>> refusal("something else")
        ('', '')
    """
    for pattern, meaning, hint in _REFUSALS:
        if found := re.search(pattern, log):
            return meaning.format(*found.groups()), hint
    return "", ""
