"""Head and tail of data that may be too long to keep."""

from __future__ import annotations


class Kept:
    """Keeps head and tail: up to a number of bytes, half from the start and half from the end."""

    def __init__(self, most: int) -> None:
        self._head_room = most - most // 2
        self._most_tail = most // 2
        self._head = bytearray()
        self._tail = bytearray()
        #: Whether bytes are missing.
        self.truncated = False

    def add(self, data: bytes) -> None:
        """Appends data."""
        room = self._head_room - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(room, 0) :]
        # Cuts only occasionally, so that the dropped bytes are not moved for every piece.
        if len(self._tail) > 2 * self._most_tail + 65536:
            self._cut()

    def bytes(self) -> bytes:
        """Head and tail, joined."""
        if len(self._tail) > self._most_tail:
            self._cut()
        return bytes(self._head + self._tail)

    def _cut(self) -> None:
        self.truncated = True
        del self._tail[: len(self._tail) - self._most_tail]
