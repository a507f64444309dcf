"""What the security tests share: an environment on the one session, on each path or on the faster one."""

from __future__ import annotations

from tests.end_to_end.conftest import environment, native

__all__ = ["environment", "native"]
