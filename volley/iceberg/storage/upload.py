"""Encoding and uploading at the same time: a remote file is written by a thread of its own, behind its writer."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from fsspec.spec import AbstractBufferedFile

__all__ = ["Upload", "uploaded"]

_PART_BYTES = 16 << 20
_WAITING_BYTES = 32 << 20


def uploaded(stream: Any) -> Any:
    """The stream to write a file to: itself if it is local, else one that uploads part by part in the background.

    Args:
        stream: As fsspec has opened it.
    """
    if not isinstance(stream, AbstractBufferedFile):
        return stream
    # Some wait for 50 MB before they send anything, so that a file of the usual size is only sent when it is closed.
    stream.blocksize = _PART_BYTES
    return Upload(stream)


class Upload:
    """What is written goes on to a stream, in order, by a thread of its own.

    So much may wait: who writes faster than that waits, too. What fails is raised by the next write, or by `close`.

    Args:
        stream: The stream, of bytes.
        waiting: The most bytes that wait, beside those of one write.
    """

    def __init__(self, stream: Any, waiting: int = _WAITING_BYTES) -> None:
        self._stream = stream
        self._most = waiting
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="volley-upload")
        self._ahead: deque[tuple[Future[Any], int]] = deque()
        self._waiting = 0
        self._written = 0
        self._failed = False
        self.closed = False

    def write(self, data: Any) -> int:
        """Take bytes, or a buffer of them that nobody changes any more; returns how many."""
        size = memoryview(data).nbytes
        self._wait(self._most)
        self._ahead.append((self._thread.submit(self._send, data), size))
        self._waiting += size
        self._written += size
        return size

    def tell(self) -> int:
        """How many bytes it was given."""
        return self._written

    def close(self) -> None:
        """Wait until all of it is uploaded.

        Raises:
            Exception: What the stream raised.
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
        """On its thread: behind a write that failed there are no others."""
        if self._failed:
            return
        try:
            self._stream.write(data)
        except BaseException:
            self._failed = True
            raise

    def _wait(self, most: int) -> None:
        """Until no more bytes than these are ahead."""
        while self._ahead and (self._waiting > most or self._ahead[0][0].done()):
            future, size = self._ahead.popleft()
            self._waiting -= size
            future.result()
