# Generated from berth._async by generate_sync.py. Do not edit.
"""Running commands."""

from __future__ import annotations

import codecs
import contextlib
import signal as signals
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import Literal, Union

from berth import _convert
from berth._sync.transport import Background, Callback, Lock, ReentrantLock, Stream, Transport
from berth._sync.transport import background, finished, invoke
from berth._kept import Kept
from berth._retry import Pauses, is_broken
from berth.errors import BerthError, CanceledError, ConnectionLostError, ProcessStateError
from berth.types import Chunk, CommandResult, Content, ExitStatus
from berth.v1 import process_pb2

DEFAULT_OUTPUT_BYTES = 1024 * 1024
#: Bytes of stdin in one message.
PIECE_BYTES = 1024 * 1024

#: How long the request to end a command may take after its reader has left.
_END_S = 10.0

_Event = Union[process_pb2.ExecResponse, process_pb2.AttachProcessResponse]
_Stream = Union[Stream[process_pb2.ExecResponse], Stream[process_pb2.AttachProcessResponse]]
_Name = Literal["stdout", "stderr"]


class Process:
    """A running command: its output as it arrives, its stdin, and its end.

    Iterate over it to read its output. The loop starts the command, and leaving the loop early ends it::

        for chunk in sandbox.exec("make"):
            print(chunk.text, end="")

    Or enter it, to write to its stdin or look at its status; then leaving the block ends it::

        with sandbox.exec("cat", keep_stdin_open=True) as process:
            process.write("hello\\n")
            process.close_stdin()
            status = process.wait(on_stdout=print)

    If the connection breaks, the client reconnects and the output continues at the byte where it stopped. If that
    fails, `ConnectionLostError` says how much was received.

    A command that was attached, or started with `detach`, continues when its reader leaves.
    """

    def __init__(
        self,
        transport: Transport,
        request: process_pb2.ExecRequest | process_pb2.AttachProcessRequest,
        reconnect: float,
        rest: tuple[bytes | memoryview, bool] | None = None,
    ) -> None:
        self._transport = transport
        #: Stdin that is too long for the request, and whether end of file follows.
        self._rest = rest
        self._writing_rest: Background | None = None
        #: Why the rest of stdin could not be written.
        self._failure: Exception | None = None
        self._request = request
        self._reconnect = reconnect
        self._stream: _Stream | None = None
        self._lost: Pauses | None = None
        #: Whether a wait for its start was canceled, and nobody has waited since.
        self._given_up = False
        self._start_lock = Lock()
        self._started = False
        self._entered = False
        self._ended = False
        self._end_lock = ReentrantLock()
        self._early: deque[Chunk] = deque()
        self._decoders = {name: _decoder() for name in ("stdout", "stderr")}
        self._stdin_lock = Lock()
        self._stdin_offset: int | None = None
        #: Its id. Empty before it has started.
        self.process_id = ""
        #: When it started, by the service's clock.
        self.start_time: datetime | None = None
        #: How it ended. None until then, or if unknown.
        self.status: ExitStatus | None = None
        #: Bytes of each stream received so far: where a later reader would continue.
        self.stdout_offset = 0
        self.stderr_offset = 0
        #: How many services had recovered the command when it was at these offsets: one that was killed may continue
        #: before them. None before it has started.
        self.recoveries: int | None = None
        self._owned = False
        if isinstance(request, process_pb2.ExecRequest):
            self._owned = request.on_disconnect != process_pb2.ON_DISCONNECT_DETACH
            self._stdin_offset = len(request.stdin)
        else:
            self.process_id = request.process_id
            self.stdout_offset = request.stdout_offset
            self.stderr_offset = request.stderr_offset
            if request.HasField("recoveries"):
                self.recoveries = request.recoveries

    def start(self) -> Process:
        """Starts the command unless it has started. Raises BerthError if it cannot start. A command with `detach` has
        all of its `stdin` then.
        """
        connected = self._stream is not None and not self._given_up
        self._begin()
        if self._ended and not self._started:
            raise RuntimeError("the reader left the command before it started")
        if not (connected or self._owned or self._entered):
            # It continues without a reader, but a reader that does not read would block it. `read` connects again.
            self._disconnect()
            self._transport.release(self)
            self._rest_written()
        return self

    def read(self) -> Chunk | None:
        """The next piece of output as soon as there is some; None when the command has ended."""
        while not self._early:
            if self.status is not None or self._ended:
                return None
            if not self._started:
                self._begin()
                continue
            chunk = self._next()
            if chunk is not None:
                return chunk
        return self._early.popleft()

    def wait(self, on_stdout: Callback | None = None, on_stderr: Callback | None = None) -> ExitStatus:
        """Waits for the end, and passes on the output until then.

        Canceling the wait ends the command, unless it was entered.
        """
        for chunk in self:
            if chunk.text:
                invoke(on_stdout if chunk.stream == "stdout" else on_stderr, chunk.text)
        return self._status()

    def result(
        self,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
        on_stdout: Callback | None = None,
        on_stderr: Callback | None = None,
    ) -> CommandResult:
        """Waits for the end and collects the output, up to a number of bytes per stream (0: the default, 1 MiB). Of a
        longer one, keeps head and tail.
        """
        max_output_bytes = max_output_bytes or DEFAULT_OUTPUT_BYTES
        kept = {"stdout": Kept(max_output_bytes), "stderr": Kept(max_output_bytes)}
        for chunk in self:
            kept[chunk.stream].add(chunk)
            if chunk.text:
                invoke(on_stdout if chunk.stream == "stdout" else on_stderr, chunk.text)
        stdout, stdout_gap = kept["stdout"].result()
        stderr, stderr_gap = kept["stderr"].result()
        return CommandResult(
            stdout_bytes=stdout,
            stderr_bytes=stderr,
            truncated=stdout_gap is not None or stderr_gap is not None,
            status=self._status(),
            process_id=self.process_id,
            stdout_gap=stdout_gap,
            stderr_gap=stderr_gap,
        )

    def write(self, data: Content) -> None:
        """Writes to its stdin, and returns when the command has room for more.

        For commands started with `keep_stdin_open` or a terminal. Raises ProcessStateError if stdin is closed or the
        command has ended, StdinLostError if a restart of the service cut it off. The data is written once, no matter
        how often the connection breaks. A write that is canceled or fails may have written part of its data; the next
        write continues after that part.
        """
        self._write(_convert.content(data), close=False)

    def close_stdin(self) -> None:
        """Closes its stdin. Does nothing if it has ended."""
        with contextlib.suppress(ProcessStateError):
            self._write(b"", close=True)

    def signal(self, signal: int | str) -> None:
        """Sends a signal to its process group: `signal.SIGINT`, "SIGINT", or its number on Linux."""
        number = _convert.signal_number(signal)
        self.start()
        request = process_pb2.SignalProcessRequest(process_id=self.process_id, signal=number)
        self._transport.retried(self._transport.stubs.processes.SignalProcess, request)

    def kill(self) -> None:
        """Kills its process group. Does nothing if it has ended."""
        with contextlib.suppress(ProcessStateError):
            self.signal(signals.SIGKILL)

    def resize(self, columns: int, rows: int) -> None:
        """Resizes its terminal, in characters."""
        self.start()
        request = process_pb2.ResizeTerminalRequest(process_id=self.process_id, columns=columns, rows=rows)
        self._transport.retried(self._transport.stubs.processes.ResizeTerminal, request)

    def end(self) -> None:
        """Stops reading; a command that is still running is killed unless it is detached or attached. Idempotent."""
        # In turns: who closes the client must not cut off the request of another caller.
        with self._end_lock:
            if self._ended:
                return
            self._ended = True
            # A command that continues gets the rest of its stdin.
            if self._writing_rest is not None and self._owned:
                self._writing_rest.cancel()
            if self._owned and not self.process_id and self._stream is not None:
                stream, self._stream = self._stream, None
                stream.leave()
                self._transport.later(lambda: self._abandon(stream))
            try:
                self._kill_owned()
            finally:
                self._disconnect()
                self._transport.release(self)

    def _kill_owned(self) -> None:
        """Kills the command if its reader must end it. If the service cannot be reached, it ends the command by itself."""
        if self._owned and self.status is None and self.process_id:
            with contextlib.suppress(BerthError):
                request = process_pb2.SignalProcessRequest(process_id=self.process_id, signal=signals.SIGKILL)
                self._transport.unary(self._transport.stubs.processes.SignalProcess, request, _END_S)

    def _abandon(self, stream: _Stream) -> None:
        """Waits until the command has started, and kills it. Without its id nobody could, and the service would wait
        for its reader to return.
        """
        event = stream.last(_END_S)
        if event is not None and event.WhichOneof("event") == "started":
            self.process_id = event.started.process_id
            self._kill_owned()

    def __enter__(self) -> Process:
        self._entered = True
        try:
            return self.start()
        except BaseException:
            self.end()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def __iter__(self) -> Iterator[Chunk]:
        try:
            while (chunk := self.read()) is not None:
                yield chunk
        finally:
            if not self._entered:
                self.end()

    def _status(self) -> ExitStatus:
        if self.status is None and self._transport.closed:
            raise CanceledError("the client was closed", code="CANCELLED")
        if self.status is None:
            raise RuntimeError("the reader left the command before its end, so that how it ended is not known")
        return self.status

    def _begin(self) -> None:
        """Reads until it has started. One caller does this for all who wait; later output belongs to the reader."""
        with self._start_lock:
            while not (self._started or self.status is not None or self._ended):
                chunk = self._next()
                if chunk is not None:
                    self._early.append(chunk)

    def _next(self) -> Chunk | None:
        """Takes the next event; returns the output in it, if there is any."""
        self._given_up = False
        try:
            if self._failure is not None:
                raise self._failure
            if self._stream is None:
                self._stream = self._connect()
            event: _Event | None = self._stream.read()
            if event is None and self._ended:
                return None
            if event is None and self._failure is not None:
                raise self._failure
            if event is None:
                raise BerthError("the service ended the stream without saying how the command ended")
        except BerthError as error:
            self._disconnect()
            if error is self._failure:
                self.end()
                raise
            try:
                self._recover(error)
            except BerthError:
                # Its client need not end it, nor keep its stdin.
                self._transport.release(self)
                raise
            return None
        except BaseException:
            # A canceled wait has also canceled the call; the next one continues where it stopped. Only the start cannot
            # be requested again.
            self._given_up = self._stream is not None and self._stream.outlives_reads
            if self._stream is not None and not self._given_up:
                self._disconnect()
                if not self._is_repeatable():
                    self.end()
            raise
        self._lost = None
        return self._take(event)

    def _connect(self) -> _Stream:
        stubs = self._transport.stubs.processes
        self._transport.adopt(self)
        if not self.process_id and isinstance(self._request, process_pb2.ExecRequest):
            # Without the id that it returns nobody could end the command, and without a request id, another call would
            # start another command.
            return self._transport.stream(
                stubs.Exec, self._request, outlives_reads=self._owned or not self._request.request_id
            )
        request = process_pb2.AttachProcessRequest(
            process_id=self.process_id,
            stdout_offset=self.stdout_offset,
            stderr_offset=self.stderr_offset,
            recoveries=self.recoveries,
        )
        return self._transport.stream(stubs.AttachProcess, request)

    def _disconnect(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None

    def _is_repeatable(self) -> bool:
        """Whether connecting again does not start another command."""
        if self._started or not isinstance(self._request, process_pb2.ExecRequest):
            return True
        return self._request.request_id != ""

    def _recover(self, error: BerthError) -> None:
        """Waits before reconnecting; raises if reconnecting makes no sense, or no longer does."""
        started = self._started
        if is_broken(error) and not self._is_repeatable():
            raise ConnectionLostError(
                f"{error.message} The command may have started; then it ends within {self._reconnect:g} s, unless it is "
                "detached. With a request_id of its own it is started once, and this is made again."
            ) from error
        if is_broken(error):
            if self._lost is None:
                self._lost = Pauses(self._reconnect if started else self._transport.retry_for)
            wait = self._lost.next(error)
            if wait is not None:
                return self._transport.pause(wait)
        elif self._lost is None or not started:
            raise error
        if not started:
            raise error
        raise ConnectionLostError(
            f"The connection to {self._transport.endpoint.address} was lost after {self.stdout_offset} bytes of "
            f"stdout and {self.stderr_offset} of stderr of {self.process_id}, and could not be restored within "
            f"{self._reconnect:g} s. If the command still runs or its record is kept, attach("
            f'"{self.process_id}", stdout_offset={self.stdout_offset}, stderr_offset={self.stderr_offset}, '
            f"recoveries={self.recoveries}) reads on. [{error.message}]",
            process_id=self.process_id,
            stdout_received=self.stdout_offset,
            stderr_received=self.stderr_offset,
            recoveries=self.recoveries,
        ) from error

    def _take(self, event: _Event) -> Chunk | None:
        kind = event.WhichOneof("event")
        if kind == "output":
            output = event.output
            return self._chunk(_convert.stream_name(output.stream), output.offset, output.data, 0)
        if kind == "gap":
            gap = event.gap
            lost = gap.to_offset - gap.from_offset
            return self._chunk(_convert.stream_name(gap.stream), gap.to_offset, b"", lost)
        if kind == "started":
            self._started = True
            if self._stream is not None:
                self._stream.outlives_reads = False
            self.process_id = event.started.process_id
            self.start_time = _convert.time(event.started.start_time)
            if self.recoveries not in (None, event.started.recoveries):
                self.stdout_offset = event.started.stdout_offset
                self.stderr_offset = event.started.stderr_offset
            self.recoveries = event.started.recoveries
            if self._rest is not None:
                self._writing_rest = background(self._write_rest)
        elif kind == "exited":
            self.status = _convert.exit_status(event.exited)
            self._transport.release(self)
            self._finish_text()
        # Anything else is a keepalive, or an event of a newer service.
        return None

    def _chunk(self, name: _Name, offset: int, data: bytes, lost: int) -> Chunk:
        if name == "stdout":
            self.stdout_offset = offset + len(data)
        else:
            self.stderr_offset = offset + len(data)
        return Chunk(name, offset, data, self._decoders[name].decode(data, final=lost > 0), lost)

    def _finish_text(self) -> None:
        """Returns characters that were never completed."""
        ends: tuple[tuple[_Name, int], ...] = (("stdout", self.stdout_offset), ("stderr", self.stderr_offset))
        for name, offset in ends:
            rest = self._decoders[name].decode(b"", final=True)
            if rest:
                self._early.append(Chunk(name, offset, b"", rest))

    def _write_rest(self) -> None:
        """Writes the rest of stdin while output is read."""
        (data, close), self._rest = self._rest or (b"", False), None
        try:
            with contextlib.suppress(ProcessStateError):
                # With the patience of the command: its start is one act.
                self._write_pieces(data, close, max(self._reconnect, self._transport.retry_for))
        except Exception as error:
            if not self._ended:
                self._failure = error
                self._disconnect()

    def _rest_written(self) -> None:
        """Waits until nothing is left of the stdin that the command was given."""
        if self._writing_rest is not None:
            finished(self._writing_rest)
        if self._failure is not None:
            raise self._failure

    def _write(self, data: bytes, close: bool) -> None:
        self.start()
        self._rest_written()
        self._write_pieces(data, close)

    def _write_pieces(
        self, data: bytes | memoryview, close: bool, retry_for: float | None = None
    ) -> None:
        with self._stdin_lock:
            # Unknown until this write succeeds: otherwise what a failed write has written would be subtracted from
            # the next.
            offset, self._stdin_offset = self._stdin_offset, None
            if offset is None:
                # An empty write returns the offset of stdin.
                offset = self._write_piece(0, b"", False, retry_for)
            view = memoryview(data)
            while True:
                piece = bytes(view[:PIECE_BYTES])
                view = view[PIECE_BYTES:]
                last = len(view) == 0
                offset = self._write_piece(offset, piece, close and last, retry_for)
                if last:
                    break
            self._stdin_offset = offset

    def _write_piece(self, offset: int, data: bytes, close: bool, retry_for: float | None) -> int:
        request = process_pb2.WriteStdinRequest(
            process_id=self.process_id, offset=offset, data=data, close=close
        )
        answer = self._transport.retried(self._transport.stubs.processes.WriteStdin, request, retry_for)
        return answer.offset


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")(errors="replace")
