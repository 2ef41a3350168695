"""Makes calls over grpc. The twin of `berth._async.transport`; safe to use from several threads."""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast

import grpc

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

Lock = threading.Lock
#: Its holder may be interrupted by a signal handler, or by an iterator that Python removes, which take it as well.
ReentrantLock = threading.RLock

Callback = Callable[[str], None]
"""Gets text as it comes."""


class WithRequestId(Protocol):
    """A request that names itself."""

    request_id: str


S = TypeVar("S", bound=WithRequestId)


class Releasable(Protocol):
    """Something that a client must end before its connection closes."""

    def end(self) -> None: ...


class Stubs:
    """The generated stubs of every service."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.sandboxes = sandbox_pb2_grpc.SandboxServiceStub(channel)
        self.processes = process_pb2_grpc.ProcessServiceStub(channel)
        self.files = file_pb2_grpc.FileServiceStub(channel)
        self.sessions = session_pb2_grpc.SessionServiceStub(channel)
        self.workspaces = workspace_pb2_grpc.WorkspaceServiceStub(channel)
        self.runs = run_pb2_grpc.RunServiceStub(channel)


def _closed() -> BerthError:
    return CanceledError("the client was closed", code="CANCELLED")


class _Call(Protocol[R_co]):
    def __next__(self) -> R_co: ...

    def cancel(self) -> object: ...


class Stream(Generic[R]):
    """The responses of a streaming call."""

    def __init__(self, call: _Call[R], error_of: Callable[[grpc.RpcError], BerthError]) -> None:
        self._call = call
        self._error_of = error_of
        self._canceled = False
        #: A read that is interrupted cannot be continued.
        self.outlives_reads = False

    def read(self) -> R | None:
        """The next response; None at the end. Raises BerthError if the call fails."""
        try:
            return next(self._call)
        except StopIteration:
            return None
        except grpc.RpcError as error:
            if self._canceled:
                return None
            raise self._error_of(error) from error

    def leave(self) -> None:
        """Ends the call: without asyncio, a response that a reader waits for is not left to others."""
        self.cancel()

    def last(self, timeout: float) -> R | None:  # noqa: ARG002 - as its twin
        """None: see `leave`."""
        return None

    def cancel(self) -> None:
        """Ends the call; a reader that waits gets None. Idempotent."""
        self._canceled = True
        self._call.cancel()


class _Making:
    """The creation of something, which is undone if its client is closed."""

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo = undo

    def end(self) -> None:
        self._undo()


#: A call that needs no token. An empty request means the whole service.
_HEALTH = "/grpc.health.v1.Health/Check"


@dataclass(frozen=True)
class _Made:
    """A channel, and what it was made for."""

    pid: int
    channel: grpc.Channel
    credentials: grpc.ChannelCredentials | None


class Transport:
    """One connection to a service, made by the first call."""

    def __init__(self, endpoint: Endpoint, retry_for: float) -> None:
        self.endpoint = endpoint
        self.retry_for = retry_for
        self._lock = threading.Lock()
        self._made: _Made | None = None
        self._stubs = Stubs(cast("grpc.Channel", CurrentChannel(self._current)))
        #: Channels whose certificate was renewed, and when. Calls that run on them go on.
        self._retired: list[tuple[float, grpc.Channel]] = []
        self._closed = False
        self._open: set[Releasable] = set()

    @property
    def stubs(self) -> Stubs:
        """The generated stubs."""
        self._channel()
        return self._stubs

    def _current(self) -> grpc.Channel:
        # The client was closed after the method was looked up: between two attempts.
        if self._made is None:
            raise _closed()
        return self._channel()

    def _channel(self) -> grpc.Channel:
        credentials = self.endpoint.credentials and self.endpoint.credentials()
        made = self._made
        if made is not None and made.pid != os.getpid():
            raise RuntimeError(
                "this client was used before a fork, which its connection does not survive: make another one in "
                "the child process, or start processes by spawn"
            )
        if made is None or (made.credentials is not credentials and not self._closed):
            made = self._make(credentials)
        return made.channel

    def _make(self, credentials: grpc.ChannelCredentials | None) -> _Made:
        with self._lock:
            made = self._made
            if made is None or (made.credentials is not credentials and not self._closed):
                if self._closed:
                    raise RuntimeError("this client is closed; make another one")
                if made is not None:
                    self._retire(made.channel)
                self._made = made = _Made(os.getpid(), self._connect(credentials), credentials)
            return made

    def _connect(self, credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
        target, options = self.endpoint.target, self.endpoint.options
        if credentials is None:
            return grpc.insecure_channel(target, options=options)
        return grpc.secure_channel(target, credentials, options=options)

    def _retire(self, channel: grpc.Channel) -> None:
        now = time.monotonic()
        while self._retired and self._retired[0][0] < now - RETIRED_FOR:
            self._retired.pop(0)[1].close()
        self._retired.append((now, channel))

    def unary(
        self, method: grpc.UnaryUnaryMultiCallable[Q, R], request: Q, timeout: float | None = None
    ) -> R:
        """Makes a call once. Raises BerthError."""
        metadata = self.endpoint.metadata
        try:
            return method(request, timeout=timeout, metadata=metadata)
        except grpc.RpcError as error:
            raise self.endpoint.error_of(error, metadata) from error
        except ValueError:
            # Another thread has closed the channel.
            if not self._closed:
                raise
            raise _closed() from None

    def retried(self, method: grpc.UnaryUnaryMultiCallable[S, R], request: S, retry_for: float | None = None) -> R:
        """Makes a call with a request id, and retries it while the service cannot be reached. Raises BerthError."""
        request.request_id = request.request_id or uuid.uuid4().hex
        return self.read(method, request, retry_for)

    def read(self, method: grpc.UnaryUnaryMultiCallable[Q, R], request: Q, retry_for: float | None = None) -> R:
        """Makes a call that is safe to repeat, with retries while the service cannot be reached. Raises BerthError."""
        pauses: Pauses | None = None
        while True:
            try:
                return self.unary(method, request)
            except BerthError as error:
                pauses = pauses or Pauses(self.retry_for if retry_for is None else retry_for)
                pause = pauses.next(error) if is_passing(error) and not self._closed else None
                if pause is None:
                    raise
            self.pause(pause)

    def pause(self, seconds: float) -> None:
        """Waits before another attempt. Meanwhile a call waits for the connection: old versions of gRPC connect only
        while one does.
        """
        until = time.monotonic() + seconds
        made = self._made
        if made is not None:
            # If another thread closes the channel, this is a ValueError.
            with contextlib.suppress(grpc.RpcError, ValueError):
                check: grpc.UnaryUnaryMultiCallable[bytes, bytes] = made.channel.unary_unary(_HEALTH)
                check(b"", timeout=seconds, wait_for_ready=True)
        time.sleep(max(0, until - time.monotonic()))

    def stream(
        self, method: grpc.UnaryStreamMultiCallable[Q, R], request: Q, *, outlives_reads: bool = False
    ) -> Stream[R]:
        """Starts a call that streams responses. `outlives_reads` has no effect: only asyncio cancels reads."""
        metadata = self.endpoint.metadata
        return Stream(method(request, metadata=metadata), lambda error: self.endpoint.error_of(error, metadata))

    def upload(self, method: grpc.StreamUnaryMultiCallable[Q, R], requests: Iterator[Q]) -> R:
        """Makes a call that streams requests. Raises BerthError, and what `requests` raises."""
        failure: Exception | None = None

        def guarded() -> Iterator[Q]:
            nonlocal failure
            try:
                yield from requests
            except Exception as error:
                failure = error
                raise

        metadata = self.endpoint.metadata
        try:
            return method(guarded(), metadata=metadata)
        except grpc.RpcError as error:
            if failure is not None:
                raise failure from None
            raise self.endpoint.error_of(error, metadata) from error

    def make(self, create: Callable[[], R], undo: Callable[[], None]) -> R:
        """Creates something. If that is interrupted, or the client is closed meanwhile, undoes it. Its request has its id
        already, since `undo` may run in another thread at any time.
        """
        making = _Making(lambda: self.later(undo))
        self.adopt(making)
        try:
            # `close` may have looked for what is open before.
            if self._closed:
                raise _closed()
            made = create()
            if self._closed:
                raise _closed()
            return made
        except Exception:
            raise
        except BaseException:
            self.later(undo)
            raise
        finally:
            self.release(making)

    def adopt(self, resource: Releasable) -> None:
        """Registers what `close` must end."""
        self._open.add(resource)

    def release(self, resource: Releasable) -> None:
        """Removes what has ended."""
        self._open.discard(resource)

    def later(self, act: Callable[[], None]) -> None:
        """Does something after an interrupt or a close: at once. Its failure must not hide the interrupt."""
        with contextlib.suppress(BerthError):
            act()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def check_open(self) -> None:
        """Raises CanceledError if `close` was called."""
        if self._closed:
            raise _closed()

    def close(self) -> None:
        """Ends what is open, then the connection. Idempotent."""
        self._closed = True
        for resource in list(self._open):
            resource.end()
        made, self._made = self._made, None
        if made is not None and made.pid == os.getpid():
            for channel in [channel for _, channel in self._retired] + [made.channel]:
                channel.close()
            self._retired.clear()


def pending(made: T) -> T:
    """What is made is there at once."""
    return made


def invoke(callback: Callback | None, text: str) -> None:
    """Calls a callback, if there is one. Raises TypeError for a coroutine function, which would never run."""
    if callback is None:
        return
    made = callback(text)
    if inspect.iscoroutine(made):
        made.close()
        raise TypeError("the callback is a coroutine function, which only AsyncBerth can call")


def in_thread(act: Callable[[], T]) -> T:
    """Does something that blocks."""
    return act()


class Background(threading.Thread):
    """Something that runs in the background."""

    def cancel(self) -> None:
        """It ends by itself: nobody can interrupt a thread."""


def background(act: Callable[[], None]) -> Background:
    """Does something in the background."""
    thread = Background(target=act, daemon=True)
    thread.start()
    return thread


def finished(work: Background) -> None:
    """Waits for the end of what runs in the background."""
    work.join()
