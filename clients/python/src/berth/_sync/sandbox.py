# Generated from berth._async by generate_sync.py. Do not edit.
"""Sandboxes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import TracebackType

from berth import _convert
from berth._sync.files import Files, SandboxName
from berth._sync.process import DEFAULT_OUTPUT_BYTES, PIECE_BYTES, Process
from berth._sync.subscription import Subscription
from berth._sync.transport import Callback, Stream, Transport, pending
from berth.errors import SandboxReplacedError
from berth.types import (
    Command,
    CommandResult,
    Content,
    Mount,
    Network,
    ProcessInfo,
    ResourceUsage,
    SandboxEvent,
    SandboxInfo,
    SandboxSpec,
    Stats,
)
from berth.v1 import process_pb2, sandbox_pb2

_PAGE = 1000
#: How long a command waits for its caller to reconnect.
_RECONNECT_S = 10.0
#: The most stdin in the request that starts a command, which has room for the longest command and environment too.
_MOST_STDIN = 2 * 1024 * 1024


class Sandbox:
    """A sandbox: a place to run commands and keep files. Created by `berth.sandboxes`.

    As a context manager it is deleted at the end::

        with berth.sandboxes.create() as sandbox:
            print((sandbox.run("echo hello")).stdout)

    It always means this sandbox: once another one has the same id, calls raise SandboxReplacedError, and `delete`
    does nothing. `berth.sandboxes.get` returns the other one.
    """

    def __init__(self, transport: Transport, info: SandboxInfo) -> None:
        #: The connection to the service.
        self.transport = transport
        #: Its data when last read; see `refresh`.
        self.info = info
        #: Its files.
        self.files = Files(transport, self._name)

    @property
    def sandbox_id(self) -> str:
        """Its id."""
        return self.info.sandbox_id

    def exec(
        self,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        working_dir: str | PurePath = "",
        user: str = "",
        timeout: float | None = None,
        stdin: Content = b"",
        keep_stdin_open: bool = False,
        terminal: tuple[int, int] | None = None,
        redact_secrets: bool = False,
        output_limit_bytes: int = 0,
        detach: bool = False,
        reconnect: float = _RECONNECT_S,
        run_id: str = "",
        request_id: str = "",
    ) -> Process:
        """A command whose output is streamed: iterate over it, or enter it; see Process.

        Nothing runs before that; `start` starts it, for one that is detached and not read.

        `command`: a command line for /bin/sh, or a list of the program and its arguments, run without a shell.
        `secret_env`: variables, each with the name of the service's secret that is its value; `redact_secrets` writes
        "[redacted]" for them in its output. `timeout`: seconds it may run; by default the sandbox's (300). `stdin`: of
        any length; more than 2 MiB are written while the command runs. With `keep_stdin_open`, `write` adds to it.
        `terminal`: gives it a terminal of so many columns and rows. `output_limit_bytes`: kills it when it writes
        more (default: no limit). `detach`: it continues when its reader leaves. `reconnect`: seconds the client may
        take to restore a broken connection before the command ends. `run_id`: the run it belongs to. `request_id`: an
        id that you choose; within 24 hours, the same id means the same command. With one, the client also reconnects
        if the connection breaks before the command is known to have started, and the command starts once.

        The start raises SandboxNotFoundError, SandboxNotRunningError, InvalidArgumentError for a working directory or
        user that does not exist, or TooManyOperationsError. A program that does not exist is a result: exit code 127.
        """
        data = _convert.content(stdin)
        rest = None
        if len(data) > _MOST_STDIN:
            rest = memoryview(data)[PIECE_BYTES:], not keep_stdin_open and terminal is None
            data = data[:PIECE_BYTES]
        request = process_pb2.ExecRequest(
            **self._name,
            env=_convert.texts("env", env),
            secret_env=_convert.texts("secret_env", secret_env),
            redact_secrets=redact_secrets,
            working_dir=_convert.working_dir(working_dir),
            user=user,
            timeout=_convert.duration(timeout),
            stdin=data,
            keep_stdin_open=keep_stdin_open or rest is not None,
            terminal=None if terminal is None else process_pb2.Terminal(columns=terminal[0], rows=terminal[1]),
            on_disconnect=process_pb2.ON_DISCONNECT_DETACH if detach else process_pb2.ON_DISCONNECT_KILL,
            disconnect_grace=None if detach else _convert.duration(reconnect),
            output_limit_bytes=output_limit_bytes,
            run_id=run_id,
            request_id=request_id,
        )
        _set_command(request, command)
        return Process(self.transport, request, reconnect, rest)

    def run(
        self,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        working_dir: str | PurePath = "",
        user: str = "",
        timeout: float | None = None,
        stdin: Content = b"",
        redact_secrets: bool = False,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
        on_stdout: Callback | None = None,
        on_stderr: Callback | None = None,
        check: bool = False,
        run_id: str = "",
        request_id: str = "",
    ) -> CommandResult:
        """Runs a command to its end and returns its result.

        Parameters as for `exec`. Of a stream longer than `max_output_bytes` (at most 16 MiB; 0: the default, 1 MiB), head
        and tail are kept. `on_stdout` and
        `on_stderr` get the output as it arrives, as text. `check` raises CommandError unless the command ends with
        exit code 0.

        If the call is canceled or its connection breaks, the command ends. With a `request_id` the command continues,
        and the same call again gets its result. With a callback, or more than 2 MiB of stdin, the call is an `exec`,
        and survives a broken connection.
        """
        stdin = _convert.content(stdin)
        is_long = len(stdin) > _MOST_STDIN
        if on_stdout is not None or on_stderr is not None or is_long:
            process = self.exec(
                command,
                env=env,
                secret_env=secret_env,
                redact_secrets=redact_secrets,
                working_dir=working_dir,
                user=user,
                timeout=timeout,
                stdin=stdin,
                detach=is_long and request_id != "",
                run_id=run_id,
                request_id=request_id,
            )
            result = process.result(max_output_bytes, on_stdout, on_stderr)
            return result.check() if check else result
        request = process_pb2.RunCommandRequest(
            **self._name,
            env=_convert.texts("env", env),
            secret_env=_convert.texts("secret_env", secret_env),
            redact_secrets=redact_secrets,
            working_dir=_convert.working_dir(working_dir),
            user=user,
            timeout=_convert.duration(timeout),
            stdin=stdin,
            max_output_bytes=max_output_bytes,
            run_id=run_id,
            request_id=request_id,
        )
        _set_command(request, command)
        method = self.transport.stubs.processes.RunCommand
        if request_id:
            answer = self.transport.retried(method, request)
        else:
            answer = self.transport.unary(method, request)
        result = _convert.command_result(answer)
        return result.check() if check else result

    def attach(
        self,
        process_id: str,
        *,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        recoveries: int | None = None,
        reconnect: float = _RECONNECT_S,
    ) -> Process:
        """Reads the output of a command, from an offset and then live, even after its end (for 24 hours).

        `recoveries` is that of the process that the offsets are from; without it they are used as they are.
        `reconnect`: seconds the client tries to restore a broken connection, for instance while the service restarts.
        The command continues when its reader leaves. Raises ProcessNotFoundError, OffsetOutOfRangeError.
        """
        request = process_pb2.AttachProcessRequest(
            process_id=process_id,
            stdout_offset=stdout_offset,
            stderr_offset=stderr_offset,
            recoveries=recoveries,
        )
        return Process(self.transport, request, reconnect)

    def process(self, process_id: str) -> ProcessInfo:
        """The data of a command's process. Raises ProcessNotFoundError."""
        request = process_pb2.GetProcessRequest(process_id=process_id)
        answer = self.transport.read(self.transport.stubs.processes.GetProcess, request)
        return _convert.process(answer.process)

    def processes(self, *, show_ended: bool = False) -> list[ProcessInfo]:
        """Its running commands, newest first; with `show_ended` also those that have ended."""
        found: list[ProcessInfo] = []
        request = process_pb2.ListProcessesRequest(
            sandbox_id=self.sandbox_id, show_ended=show_ended, page_size=_PAGE
        )
        while True:
            page = self.transport.read(self.transport.stubs.processes.ListProcesses, request)
            found += [_convert.process(each) for each in page.processes]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def refresh(self) -> SandboxInfo:
        """Reads its data again. Raises SandboxNotFoundError."""
        request = sandbox_pb2.GetSandboxRequest(**self._name)
        answer = self.transport.read(self.transport.stubs.sandboxes.GetSandbox, request)
        return self._update(answer.sandbox)

    def usage(self) -> ResourceUsage:
        """Measures what it uses, running or paused. That is not a use: it does not restart the idle time.

        Two calls give the CPU time it uses: the difference of their `cpu_time`, divided by that of their
        `measure_time` in seconds, is 1 for one core. Let at least a second pass between them. Raises
        SandboxNotFoundError, SandboxNotRunningError.
        """
        request = sandbox_pb2.GetSandboxUsageRequest(**self._name)
        answer = self.transport.read(self.transport.stubs.sandboxes.GetSandboxUsage, request)
        return _convert.resource_usage(answer.usage)

    def keep_alive(self) -> SandboxInfo:
        """Restarts its idle time, as every use does."""
        request = sandbox_pb2.KeepAliveSandboxRequest(**self._name)
        answer = self.transport.retried(self.transport.stubs.sandboxes.KeepAliveSandbox, request)
        return self._update(answer.sandbox)

    def update(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        idle_timeout: float | None = None,
        max_lifetime: float | None = None,
    ) -> SandboxInfo:
        """Changes the given settings; labels replace all existing ones, times are in seconds."""
        request = sandbox_pb2.UpdateSandboxRequest(
            **self._name,
            labels=labels,
            idle_timeout=_convert.duration(idle_timeout),
            max_lifetime=_convert.duration(max_lifetime),
        )
        given = {"labels": labels, "idle_timeout": idle_timeout, "max_lifetime": max_lifetime}
        request.update_mask.paths.extend(name for name, value in given.items() if value is not None)
        answer = self.transport.retried(self.transport.stubs.sandboxes.UpdateSandbox, request)
        return self._update(answer.sandbox)

    def pause(self) -> SandboxInfo:
        """Freezes its processes. Raises UnsupportedError if the engine cannot."""
        request = sandbox_pb2.PauseSandboxRequest(**self._name)
        answer = self.transport.retried(self.transport.stubs.sandboxes.PauseSandbox, request)
        return self._update(answer.sandbox)

    def resume(self) -> SandboxInfo:
        """Continues its processes."""
        request = sandbox_pb2.ResumeSandboxRequest(**self._name)
        answer = self.transport.retried(self.transport.stubs.sandboxes.ResumeSandbox, request)
        return self._update(answer.sandbox)

    def delete(self, *, grace: float | None = None) -> None:
        """Deletes it, and returns when it is gone. Running operations may continue for `grace` seconds (default 5).
        Idempotent.
        """
        request = sandbox_pb2.DeleteSandboxRequest(**self._name, grace=_convert.duration(grace))
        # If it is replaced, it is gone.
        with contextlib.suppress(SandboxReplacedError):
            self.transport.retried(self.transport.stubs.sandboxes.DeleteSandbox, request)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.delete(grace=0)

    @property
    def _name(self) -> SandboxName:
        return {"sandbox_id": self.info.sandbox_id, "generation": self.info.generation}

    def _update(self, sandbox: sandbox_pb2.Sandbox) -> SandboxInfo:
        self.info = _convert.sandbox(sandbox)
        return self.info


class Sandboxes:
    """The sandboxes of a service. `berth.sandboxes`."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def create(
        self,
        image: str = "",
        *,
        sandbox_id: str = "",
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        working_dir: str | PurePath = "",
        user: str = "",
        memory_bytes: int = 0,
        cpu_millis: int = 0,
        pids_limit: int = 0,
        disk_bytes: int = 0,
        network: Network | None = None,
        egress_domains: Sequence[str] = (),
        mounts: Sequence[Mount] = (),
        labels: Mapping[str, str] | None = None,
        idle_timeout: float | None = None,
        max_lifetime: float | None = None,
        command_timeout: float | None = None,
        runtime: str = "",
    ) -> Sandbox:
        """Creates a sandbox that is ready to run commands. A missing image is pulled first.

        Unset parameters take the service's defaults; they are the fields of `berth.SandboxSpec`. As a context manager
        it is deleted at the end. A create that is canceled, or whose client is closed meanwhile, leaves nothing
        behind.

        `sandbox_id`: an id that you choose. Such a create is not retried if the connection breaks.

        Raises ImageUnavailableError, SandboxLimitError, TenantQuotaError, SandboxExistsError, NotAllowedError,
        InvalidArgumentError, SandboxStartFailedError, UnsupportedError, NoSpaceError; for a workspace that it mounts
        WorkspaceNotFoundError, WorkspaceBrokenError, WorkspaceInUseError.
        """
        spec = SandboxSpec(
            image=image,
            env=env or {},
            secret_env=secret_env or {},
            working_dir=_convert.working_dir(working_dir),
            user=user,
            memory_bytes=memory_bytes,
            cpu_millis=cpu_millis,
            pids_limit=pids_limit,
            disk_bytes=disk_bytes,
            network=network,
            egress_domains=egress_domains,
            mounts=mounts,
            labels=labels or {},
            idle_timeout=idle_timeout,
            max_lifetime=max_lifetime,
            command_timeout=command_timeout,
            runtime=runtime,
        )
        return self.create_from(spec, sandbox_id=sandbox_id)

    def create_from(self, spec: SandboxSpec, *, sandbox_id: str = "") -> Sandbox:
        """Creates a sandbox like `create`, from a spec."""
        return pending(self._create(spec, sandbox_id))

    def get(self, sandbox_id: str) -> Sandbox:
        """An existing sandbox. Raises SandboxNotFoundError."""
        request = sandbox_pb2.GetSandboxRequest(sandbox_id=sandbox_id)
        answer = self.transport.read(self.transport.stubs.sandboxes.GetSandbox, request)
        return Sandbox(self.transport, _convert.sandbox(answer.sandbox))

    def list(
        self, *, labels: Mapping[str, str] | None = None, show_terminated: bool = False
    ) -> list[SandboxInfo]:
        """Every sandbox that has all of the labels, newest first; ended ones only with `show_terminated`."""
        found: list[SandboxInfo] = []
        request = sandbox_pb2.ListSandboxesRequest(
            label_selector=labels, show_terminated=show_terminated, page_size=_PAGE
        )
        while True:
            page = self.transport.read(self.transport.stubs.sandboxes.ListSandboxes, request)
            found += [_convert.sandbox(each) for each in page.sandboxes]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def delete(self, sandbox_id: str, *, grace: float | None = None) -> None:
        """Deletes a sandbox; see `Sandbox.delete`. An unknown id is not an error."""
        request = sandbox_pb2.DeleteSandboxRequest(sandbox_id=sandbox_id, grace=_convert.duration(grace))
        self.transport.retried(self.transport.stubs.sandboxes.DeleteSandbox, request)

    def stats(self) -> Stats:
        """The service's figures."""
        answer = self.transport.read(
            self.transport.stubs.sandboxes.GetStats, sandbox_pb2.GetStatsRequest()
        )
        return _convert.stats(answer)

    def events(self, *, after_sequence: int = 0, sandbox_id: str = "") -> Subscription[SandboxEvent]:
        """The events of sandboxes: first the kept history after a sequence, then events as they happen.

        If the connection breaks, it continues after the last event.
        """

        def connect(last: SandboxEvent | None) -> Stream[sandbox_pb2.WatchEventsResponse]:
            request = sandbox_pb2.WatchEventsRequest(
                after_sequence=last.sequence if last else after_sequence, sandbox_id=sandbox_id
            )
            return self.transport.stream(self.transport.stubs.sandboxes.WatchEvents, request)

        return Subscription(
            self.transport, connect, _convert.sandbox_event, announced=False, resumes=True
        )

    def _create(self, spec: SandboxSpec, sandbox_id: str) -> Sandbox:
        request = sandbox_pb2.CreateSandboxRequest(
            spec=_convert.spec_message(spec),
            sandbox_id=sandbox_id,
            request_id="" if sandbox_id else uuid.uuid4().hex,
        )
        method = self.transport.stubs.sandboxes.CreateSandbox
        if sandbox_id:
            # Without a request id, the service cancels the create. Which sandbox the id names is not certain enough
            # to delete it.
            answer = self.transport.unary(method, request)
        else:
            # A canceled request continues because it has an id. The same request again returns the sandbox to delete.
            answer = self.transport.make(
                lambda: self.transport.retried(method, request), lambda: self._undo(request)
            )
        return Sandbox(self.transport, _convert.sandbox(answer.sandbox))

    def _undo(self, request: sandbox_pb2.CreateSandboxRequest) -> None:
        answer = self.transport.retried(self.transport.stubs.sandboxes.CreateSandbox, request)
        self.delete(answer.sandbox.sandbox_id, grace=0)


def _set_command(
    request: process_pb2.ExecRequest | process_pb2.RunCommandRequest, command: Command
) -> None:
    if isinstance(command, str):
        request.shell = command
    else:
        request.argv.args.extend(_convert.argv(command))
