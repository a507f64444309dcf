"""Asks the HTTP endpoint of a running job."""

from __future__ import annotations

from urllib.error import HTTPError
from urllib.request import urlopen

from volley import Job

__all__ = ["answer"]


def answer(job: Job, path: str) -> tuple[int, str]:
    """The status and the text of one of the endpoint's paths."""
    assert job.metrics_url
    try:
        with urlopen(job.metrics_url.replace("/metrics", path), timeout=10) as found:
            return found.status, found.read().decode().strip()
    except HTTPError as error:
        return error.code, error.read().decode().strip()
