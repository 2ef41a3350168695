"""Streams that are read once, from their start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from berth._async.transport import AsyncStream, AsyncTransport
from berth._retry import Pauses, is_broken
from berth.errors import BerthError

R = TypeVar("R")


class AsyncReading(Generic[R]):
    """The responses of a call that only reads. Until the first response, the call is retried while the service cannot
    be reached.
    """

    def __init__(self, transport: AsyncTransport, connect: Callable[[], AsyncStream[R]]) -> None:
        self._transport = transport
        self._connect = connect
        self._stream = connect()
        self._received = False
        self._lost: Pauses | None = None

    async def read(self) -> R | None:
        """The next response; None at the end. Raises BerthError if the call fails."""
        while True:
            try:
                answer = await self._stream.read()
                self._received = True
                return answer
            except BerthError as error:
                if self._received or self._transport.closed or not is_broken(error):
                    raise
                self._lost = self._lost or Pauses(self._transport.retry_for)
                wait = self._lost.next(error)
                if wait is None:
                    raise
            await self._transport.pause(wait)
            self._stream = self._connect()

    def cancel(self) -> None:
        """Ends the call. Idempotent."""
        self._stream.cancel()
