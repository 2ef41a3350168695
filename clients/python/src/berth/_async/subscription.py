"""Streams of events, as they happen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Generic, TypeVar

from berth._async.transport import AsyncStream, AsyncTransport
from berth._retry import Pauses, is_broken
from berth.errors import BerthError

T = TypeVar("T")
R = TypeVar("R")


class _Source(Generic[T]):
    """A stream of responses that are converted: each to a tuple with the item in it, or an empty one."""

    def __init__(self, stream: AsyncStream[R], convert: Callable[[R], T | None]) -> None:
        async def read() -> tuple[T | None] | None:
            answer = await stream.read()
            return None if answer is None else (convert(answer),)

        self.read = read
        self.cancel = stream.cancel
        self.outlives_reads = stream.outlives_reads


class AsyncSubscription(Generic[T]):
    """A stream of items. Iterate over it, and leave the loop to end it.

    If you enter it, it watches from then on, and the end of the block ends it::

        async with sandbox.files.watch("/workspace") as changes:
            async for change in changes:
                print(change.type, change.path)
    """

    def __init__(
        self,
        transport: AsyncTransport,
        connect: Callable[[T | None], AsyncStream[R]],
        convert: Callable[[R], T | None],
        *,
        announced: bool,
        resumes: bool,
    ) -> None:
        """`connect` gets the last item received. `announced`: the service's first response says that it watches.
        `resumes`: it can reconnect without missing anything.
        """
        self._transport = transport
        self._connect: Callable[[T | None], _Source[T]] = lambda last: _Source(connect(last), convert)
        self._announced = announced
        self._resumes = resumes
        self._source: _Source[T] | None = None
        self._last: T | None = None
        self._lost: Pauses | None = None
        self._entered = False
        self._ended = False

    async def read(self) -> T | None:
        """The next item, as soon as there is one; None at the end."""
        while (answer := await self._next()) is not None:
            if answer[0] is not None:
                self._last = answer[0]
                return self._last
        return None

    async def end(self) -> None:
        """Ends it. Idempotent."""
        self._ended = True
        self._transport.release(self)
        self._disconnect()

    async def __aenter__(self) -> AsyncSubscription[T]:
        self._entered = True
        try:
            if self._announced:
                await self._next()
        except BaseException:
            # Its call outlives a wait that is canceled, and a block that never begins never ends it.
            await self.end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()

    async def __aiter__(self) -> AsyncIterator[T]:
        try:
            while (item := await self.read()) is not None:
                yield item
        finally:
            if not self._entered:
                await self.end()

    async def _next(self) -> tuple[T | None] | None:
        while not self._ended:
            try:
                if self._source is None:
                    self._transport.adopt(self)
                    self._source = self._connect(self._last)
                answer = await self._source.read()
                self._lost = None
                return answer
            except BerthError as error:
                self._disconnect()
                self._lost = self._lost or Pauses(self._transport.retry_for)
                wait = self._lost.next(error) if self._resumes and is_broken(error) else None
                if wait is None:
                    await self.end()
                    raise
            except BaseException:
                # A canceled read has also canceled the call, unless the call has to outlive it.
                if self._source is None or not self._source.outlives_reads:
                    self._disconnect()
                raise
            await self._transport.pause(wait)
        return None

    def _disconnect(self) -> None:
        if self._source is not None:
            self._source.cancel()
            self._source = None
