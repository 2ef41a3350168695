# Generated from berth._async by generate_sync.py. Do not edit.
"""Streams of events, as they happen."""

from __future__ import annotations

from collections.abc import Iterator, Callable
from types import TracebackType
from typing import Generic, TypeVar

from berth._sync.transport import Stream, Transport
from berth._retry import Pauses, is_broken
from berth.errors import BerthError

T = TypeVar("T")
R = TypeVar("R")


class _Source(Generic[T]):
    """A stream of responses that are converted: each to a tuple with the item in it, or an empty one."""

    def __init__(self, stream: Stream[R], convert: Callable[[R], T | None]) -> None:
        def read() -> tuple[T | None] | None:
            answer = stream.read()
            return None if answer is None else (convert(answer),)

        self.read = read
        self.cancel = stream.cancel
        self.outlives_reads = stream.outlives_reads


class Subscription(Generic[T]):
    """A stream of items. Iterate over it, and leave the loop to end it.

    If you enter it, it watches from then on, and the end of the block ends it::

        with sandbox.files.watch("/workspace") as changes:
            for change in changes:
                print(change.type, change.path)
    """

    def __init__(
        self,
        transport: Transport,
        connect: Callable[[T | None], Stream[R]],
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

    def read(self) -> T | None:
        """The next item, as soon as there is one; None at the end."""
        while (answer := self._next()) is not None:
            if answer[0] is not None:
                self._last = answer[0]
                return self._last
        return None

    def end(self) -> None:
        """Ends it. Idempotent."""
        self._ended = True
        self._transport.release(self)
        self._disconnect()

    def __enter__(self) -> Subscription[T]:
        self._entered = True
        try:
            if self._announced:
                self._next()
        except BaseException:
            # Its call outlives a wait that is canceled, and a block that never begins never ends it.
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def __iter__(self) -> Iterator[T]:
        try:
            while (item := self.read()) is not None:
                yield item
        finally:
            if not self._entered:
                self.end()

    def _next(self) -> tuple[T | None] | None:
        while not self._ended:
            try:
                if self._source is None:
                    self._transport.adopt(self)
                    self._source = self._connect(self._last)
                answer = self._source.read()
                self._lost = None
                return answer
            except BerthError as error:
                self._disconnect()
                self._lost = self._lost or Pauses(self._transport.retry_for)
                wait = self._lost.next(error) if self._resumes and is_broken(error) else None
                if wait is None:
                    self.end()
                    raise
            except BaseException:
                # A canceled read has also canceled the call, unless the call has to outlive it.
                if self._source is None or not self._source.outlives_reads:
                    self._disconnect()
                raise
            self._transport.pause(wait)
        return None

    def _disconnect(self) -> None:
        if self._source is not None:
            self._source.cancel()
            self._source = None
