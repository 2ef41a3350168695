"""Makes calls over grpc.aio. Its twin is `berth._sync.transport`. Nothing else knows which of the two clients it is
part of.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar, Union, cast

import grpc
import grpc.aio

from berth._channel import CurrentChannel
from berth._endpoint import RETIRED_FOR, Endpoint
from berth._retry import Pauses, is_passing
from berth.errors import BerthError, CanceledError
from berth.v1 import file_pb2_grpc, process_pb2_grpc, run_pb2_grpc, sandbox_pb2_grpc, session_pb2_grpc
from berth.v1 import workspace_pb2_grpc

Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

Lock = asyncio.Lock
#: No task takes it twice.
ReentrantLock = asyncio.Lock

Callback = Callable[[str], Union[Awaitable[None], None]]
"""Gets text as it arrives. May be a coroutine function, which is then awaited."""


class WithRequestId(Protocol):
    """A request with a request id."""

    request_id: str


S = TypeVar("S", bound=WithRequestId)


class Releasable(Protocol):
    """Something that a client must end before its connection closes."""

    async def end(self) -> None: ...


class Stubs:
    """The generated stubs of every service."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.sandboxes = sandbox_pb2_grpc.SandboxServiceStub(channel)
        self.processes = process_pb2_grpc.ProcessServiceStub(channel)
        self.files = file_pb2_grpc.FileServiceStub(channel)
        self.sessions = session_pb2_grpc.SessionServiceStub(channel)
        self.workspaces = workspace_pb2_grpc.WorkspaceServiceStub(channel)
        self.runs = run_pb2_grpc.RunServiceStub(channel)


def _was_canceled() -> bool:
    """Whether the running task was asked to end. gRPC raises the same CancelledError if its channel is closed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _closed() -> BerthError:
    return CanceledError("the client was closed", code="CANCELLED")


class _Call(Protocol[R_co]):
    async def read(self) -> object | R_co: ...

    def cancel(self) -> bool: ...


class AsyncStream(Generic[R]):
    """The responses of a streaming call."""

    def __init__(
        self, call: _Call[R], error_of: Callable[[grpc.RpcError], BerthError], *, outlives_reads: bool = False
    ) -> None:
        self._call = call
        self._error_of = error_of
        self._canceled = False
        #: Whether a read that is canceled leaves its response to the next one. Otherwise it cancels the call.
        self.outlives_reads = outlives_reads
        self._turn = Lock()
        self._reading: asyncio.Task[object] | None = None
        #: Done once it was left.
        self._left: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def _read(self) -> object:
        return await self._call.read()

    async def _next(self) -> object:
        if not self.outlives_reads:
            return await self._call.read()
        # In turns, since two readers must not get the same response.
        async with self._turn:
            if self._reading is None:
                self._reading = asyncio.get_running_loop().create_task(self._read())
                # Otherwise asyncio reports a failure that nobody reads any more.
                self._reading.add_done_callback(lambda reading: reading.cancelled() or reading.exception())
            await asyncio.wait([self._reading, self._left], return_when=asyncio.FIRST_COMPLETED)
            if self._left.done():
                return grpc.aio.EOF
            reading, self._reading = self._reading, None
            return reading.result()

    async def read(self) -> R | None:
        """The next response; None at the end. Raises BerthError if the call fails."""
        try:
            answer = await self._next()
        except asyncio.CancelledError:
            # gRPC raises this also if the call was canceled instead of its reader.
            if self._canceled:
                return None
            if _was_canceled():
                raise
            raise _closed() from None
        except grpc.RpcError as error:
            raise self._error_of(error) from error
        # gRPC's types do not express that EOF is a singleton.
        return None if answer is grpc.aio.EOF else cast("R", answer)

    def leave(self) -> None:
        """Stops whoever waits for a stream that outlives its reads: they get None, and `last` their response."""
        self._left.set_result(None)

    async def last(self, timeout: float) -> R | None:
        """The last response of a stream that was left. Ends the call. None if it fails, or takes longer than `timeout`
        seconds.
        """
        reading = self._reading or asyncio.get_running_loop().create_task(self._read())
        try:
            answer = await asyncio.wait_for(reading, timeout)
            return None if answer is grpc.aio.EOF else cast("R", answer)
        except (asyncio.TimeoutError, grpc.RpcError):
            return None
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Ends the call; a waiting reader gets None. Idempotent."""
        self._canceled = True
        self._call.cancel()


class _Making(Generic[R]):
    """The creation of something, which ends with its client."""

    def __init__(self, task: asyncio.Task[R]) -> None:
        self.task = task
        self.is_over = asyncio.Event()

    async def end(self) -> None:
        self.task.cancel()
        await self.is_over.wait()


@dataclass(frozen=True)
class _Made:
    """A channel, and what it was made for."""

    loop: asyncio.AbstractEventLoop
    channel: grpc.aio.Channel
    credentials: grpc.ChannelCredentials | None


class AsyncTransport:
    """One connection to a service, made by the first call, in the running event loop."""

    def __init__(self, endpoint: Endpoint, retry_for: float) -> None:
        self.endpoint = endpoint
        self.retry_for = retry_for
        self._made: _Made | None = None
        self._stubs = Stubs(cast("grpc.aio.Channel", CurrentChannel(self._current)))
        #: Channels whose certificate was renewed, and when. Calls that run on them go on.
        self._retired: list[tuple[float, grpc.aio.Channel]] = []
        self._closed = False
        self._open: set[Releasable] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def stubs(self) -> Stubs:
        """The generated stubs, for the running event loop."""
        self._channel()
        return self._stubs

    def _current(self) -> grpc.aio.Channel:
        # The client was closed after the method was looked up: between two attempts.
        if self._made is None:
            raise _closed()
        return self._channel()

    def _channel(self) -> grpc.aio.Channel:
        loop = asyncio.get_running_loop()
        made = self._made
        if made is not None and made.loop is not loop:
            raise RuntimeError("this AsyncBerth belongs to another event loop; make one in each loop")
        credentials = self.endpoint.credentials and self.endpoint.credentials()
        if made is None or (made.credentials is not credentials and not self._closed):
            if self._closed:
                raise RuntimeError("this client is closed; make another one")
            if made is not None:
                self._retire(made.channel)
            self._made = made = _Made(loop, self._connect(credentials), credentials)
        return made.channel

    def _connect(self, credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
        target, options = self.endpoint.target, self.endpoint.options
        if credentials is None:
            return grpc.aio.insecure_channel(target, options=options)
        return grpc.aio.secure_channel(target, credentials, options=options)

    def _retire(self, channel: grpc.aio.Channel) -> None:
        now = time.monotonic()
        while self._retired and self._retired[0][0] < now - RETIRED_FOR:
            self.later(self._retired.pop(0)[1].close)
        self._retired.append((now, channel))

    async def unary(
        self, method: grpc.aio.UnaryUnaryMultiCallable[Q, R], request: Q, timeout: float | None = None
    ) -> R:
        """Makes a call once. Raises BerthError."""
        metadata = self.endpoint.metadata
        try:
            return await method(request, timeout=timeout, metadata=metadata)
        except asyncio.CancelledError:
            if _was_canceled():
                raise
            raise _closed() from None
        except grpc.RpcError as error:
            raise self.endpoint.error_of(error, metadata) from error

    async def retried(self, method: grpc.aio.UnaryUnaryMultiCallable[S, R], request: S, retry_for: float | None = None) -> R:
        """Makes a call with a request id, and retries it while the service cannot be reached. Raises BerthError."""
        request.request_id = request.request_id or uuid.uuid4().hex
        return await self.read(method, request, retry_for)

    async def read(self, method: grpc.aio.UnaryUnaryMultiCallable[Q, R], request: Q, retry_for: float | None = None) -> R:
        """Makes a call that is safe to repeat, with retries while the service cannot be reached. Raises BerthError."""
        pauses: Pauses | None = None
        while True:
            try:
                return await self.unary(method, request)
            except BerthError as error:
                pauses = pauses or Pauses(self.retry_for if retry_for is None else retry_for)
                pause = pauses.next(error) if is_passing(error) and not self._closed else None
                if pause is None:
                    raise
            await self.pause(pause)

    async def pause(self, seconds: float) -> None:
        """Waits before another attempt."""
        await asyncio.sleep(seconds)

    def stream(
        self, method: grpc.aio.UnaryStreamMultiCallable[Q, R], request: Q, *, outlives_reads: bool = False
    ) -> AsyncStream[R]:
        """Starts a call that streams responses."""
        metadata = self.endpoint.metadata
        return AsyncStream(
            method(request, metadata=metadata),
            lambda error: self.endpoint.error_of(error, metadata),
            outlives_reads=outlives_reads,
        )

    async def upload(
        self, method: grpc.aio.StreamUnaryMultiCallable[Q, R], requests: AsyncIterator[Q]
    ) -> R:
        """Makes a call that streams requests. Raises BerthError, and what `requests` raises."""
        failure: Exception | None = None

        async def guarded() -> AsyncIterator[Q]:
            nonlocal failure
            try:
                async for request in requests:
                    yield request
            except Exception as error:
                failure = error
                raise

        metadata = self.endpoint.metadata
        try:
            return await method(guarded(), metadata=metadata)
        except (grpc.RpcError, asyncio.CancelledError) as error:
            if failure is not None:
                raise failure from None
            if isinstance(error, asyncio.CancelledError):
                if _was_canceled():
                    raise
                raise _closed() from None
            raise self.endpoint.error_of(error, metadata) from error

    async def make(
        self, create: Callable[[], Coroutine[Any, Any, R]], undo: Callable[[], Coroutine[object, object, None]]
    ) -> R:
        """Creates something. If that is canceled, or the client is closed meanwhile, undoes it. `close` waits for that."""
        # `close` does not know of it, and would leave it behind.
        if self._closed:
            raise _closed()
        making = _Making(asyncio.get_running_loop().create_task(create()))
        self.adopt(making)
        try:
            return await making.task
        except Exception:
            raise
        except BaseException as error:
            making.task.cancel()
            self.later(undo)
            if isinstance(error, asyncio.CancelledError) and not _was_canceled():
                raise _closed() from None
            raise
        finally:
            self.release(making)
            making.is_over.set()

    def adopt(self, resource: Releasable) -> None:
        """Registers something that `close` must end."""
        self._open.add(resource)

    def release(self, resource: Releasable) -> None:
        """Removes something that has ended."""
        self._open.discard(resource)

    def later(self, act: Callable[[], Coroutine[object, object, None]]) -> None:
        """Does work after a cancellation; `close` waits for it. Its failure is nobody's."""
        task = asyncio.get_running_loop().create_task(act())
        self._tasks.add(task)
        task.add_done_callback(self._settle)

    def _settle(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Nobody waits for it, so that asyncio would report its failure.
            task.exception()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def check_open(self) -> None:
        """Raises CanceledError if `close` was called."""
        if self._closed:
            raise _closed()

    async def close(self) -> None:
        """Ends what is open, then the connection. Idempotent."""
        self._closed = True
        await asyncio.gather(*(resource.end() for resource in self._open))
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        made, self._made = self._made, None
        channels = [channel for _, channel in self._retired] + ([made.channel] if made is not None else [])
        self._retired.clear()
        for channel in channels:
            await channel.close()


class Pending(Coroutine[Any, Any, T]):
    """Something being created: `await` it to keep it, or `async with` it to have it released at the end.

    It is a coroutine, since `asyncio.create_task` and `TaskGroup.create_task` accept only those.
    """

    def __init__(self, making: Coroutine[object, object, T]) -> None:
        self._making = making
        self._made: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._making.__await__()

    def send(self, value: Any, /) -> Any:
        """As of every coroutine."""
        return self._making.send(value)

    def throw(self, *given: Any) -> Any:
        """As of every coroutine."""
        return self._making.throw(*given)

    def close(self) -> None:
        """As of every coroutine."""
        self._making.close()

    async def __aenter__(self: Pending[M]) -> M:
        self._made = await self._making
        return await self._made.__aenter__()

    async def __aexit__(
        self: Pending[M],
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._made is not None:
            await self._made.__aexit__(kind, error, trace)


class _Managed(Protocol):
    async def __aenter__(self: M) -> M: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


M = TypeVar("M", bound=_Managed)


def pending(making: Coroutine[object, object, T]) -> Pending[T]:
    """Wraps the creation of something."""
    return Pending(making)


async def invoke(callback: Callback | None, text: str) -> None:
    """Calls a callback, if there is one."""
    if callback is not None:
        waiting = callback(text)
        if inspect.isawaitable(waiting):
            await waiting


async def in_thread(act: Callable[[], T]) -> T:
    """Does blocking work outside the event loop, in a thread of its own: what reads from a pipe may never return. It must
    not take one of asyncio's few threads from others, nor keep the program from ending.
    """
    done: concurrent.futures.Future[T] = concurrent.futures.Future()
    # Nobody can cancel it from now on.
    done.set_running_or_notify_cancel()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            done.set_result(context.run(act))
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(done)


Background = asyncio.Task[None]


def background(act: Callable[[], Coroutine[object, object, None]]) -> Background:
    """Does something in the background."""
    return asyncio.get_running_loop().create_task(act())


async def finished(work: Background) -> None:
    """Waits for the end of what runs in the background, and leaves it alone if the wait is canceled."""
    await asyncio.wait([work])
