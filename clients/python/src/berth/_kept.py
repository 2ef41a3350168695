"""Head and tail of data that may be too long to keep."""

from __future__ import annotations

from berth.types import Chunk, Gap


class Kept:
    """Keeps head and tail of a stream: up to a number of bytes, half from the start and half from the end."""

    def __init__(self, most: int) -> None:
        self._head_room = most - most // 2
        self._most_tail = most // 2
        self._head = bytearray()
        self._tail = bytearray()
        #: Bytes that are missing between head and tail.
        self._missing = 0
        #: Offset of the first byte. None before it.
        self._start: int | None = None

    def add(self, chunk: Chunk) -> None:
        """Adds what follows."""
        if self._start is None:
            self._start = chunk.offset - chunk.lost
        if chunk.lost > 0:
            # What was kept of the tail precedes the lost bytes: there is one gap.
            self._drop(0)
            self._missing += chunk.lost
        room = self._head_room - len(self._head) if self._missing == 0 else 0
        self._head += chunk.data[:room]
        self._tail += chunk.data[room:]
        # Cuts only occasionally, so that the dropped bytes are not moved for every piece.
        if len(self._tail) > 2 * self._most_tail + 65536:
            self._drop(self._most_tail)

    def result(self) -> tuple[bytes, Gap | None]:
        """Head and tail, joined, and the gap between them if bytes are missing."""
        if len(self._tail) > self._most_tail:
            self._drop(self._most_tail)
        cut = (self._start or 0) + len(self._head)
        gap = Gap(cut, cut + self._missing) if self._missing > 0 else None
        return bytes(self._head + self._tail), gap

    def _drop(self, left: int) -> None:
        """Shortens the tail to a number of bytes."""
        dropped = max(0, len(self._tail) - left)
        self._missing += dropped
        del self._tail[:dropped]
