"""Uploads a remote file in a thread of its own, so that encoding and uploading overlap."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from fsspec.spec import AbstractBufferedFile

__all__ = ["Upload", "uploaded"]

_PART_BYTES = 16 << 20
_WAITING_BYTES = 32 << 20


def uploaded(stream: Any) -> Any:
    """Return the stream to write a file to: a local stream unchanged, else one that uploads parts in the background.

    Args:
        stream: The file as fsspec opened it.
    """
    if not isinstance(stream, AbstractBufferedFile):
        return stream
    # Some clients buffer 50 MB before they send anything: a file of usual size would be sent only when it is closed.
    stream.blocksize = _PART_BYTES
    return Upload(stream)


class Upload:
    """Writes to a stream in order, in a thread of its own.

    At most `waiting` bytes are queued: `write` blocks beyond that. An error is raised by the next `write`, or by
    `close`.

    Args:
        stream: The stream of bytes.
        waiting: The maximum number of queued bytes, besides those of one write.
    """

    def __init__(self, stream: Any, waiting: int = _WAITING_BYTES) -> None:
        self._stream = stream
        self._limit = waiting
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="volley-upload")
        self._queue: deque[tuple[Future[Any], int]] = deque()
        self._waiting = 0
        self._written = 0
        self._failed = False
        self.closed = False

    def write(self, data: Any) -> int:
        """Queue bytes, or a buffer that is not changed afterwards; return their number."""
        size = memoryview(data).nbytes
        self._wait(self._limit)
        self._queue.append((self._thread.submit(self._send, data), size))
        self._waiting += size
        self._written += size
        return size

    def tell(self) -> int:
        """Return how many bytes were written so far."""
        return self._written

    def close(self) -> None:
        """Wait until all bytes are uploaded.

        Raises:
            Exception: The stream's error.
        """
        if self.closed:
            return
        self.closed = True
        try:
            self._wait(0)
        finally:
            self._thread.shutdown(cancel_futures=True)
            self._stream.close()

    def _send(self, data: Any) -> None:
        """Write to the stream, in the thread; skip everything after a failed write."""
        if self._failed:
            return
        try:
            self._stream.write(data)
        except BaseException:
            self._failed = True
            raise

    def _wait(self, limit: int) -> None:
        """Wait until at most this many bytes are queued; raise the error of a failed write."""
        while self._queue and (self._waiting > limit or self._queue[0][0].done()):
            future, size = self._queue.popleft()
            self._waiting -= size
            future.result()
