"""Converts between messages on the wire and the records of `berth.types`."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import PurePath
from typing import Any, Literal, Protocol

from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import ListValue, NullValue, Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from berth import types
from berth.errors import BerthError, error_of_failure
from berth.v1 import file_pb2, process_pb2, run_pb2, sandbox_pb2, session_pb2, workspace_pb2

_NETWORKS = {"NONE": sandbox_pb2.NETWORK_MODE_NONE, "EGRESS": sandbox_pb2.NETWORK_MODE_EGRESS}


class _Enum(Protocol):
    """An enum of the generated code."""

    def Name(self, number: Any) -> str: ...


#: Beyond this, every double is a whole number; up to it, JSON integers are exact in other languages.
_LARGEST_WHOLE = 2**53


def name_of(enum: _Enum, value: int, prefix: str) -> str:
    """The name of an enum value without its prefix. "UNKNOWN_n" for a value of a newer service."""
    try:
        return enum.Name(value).removeprefix(prefix)
    except ValueError:
        return f"UNKNOWN_{value}"


def duration(seconds: float | None) -> Duration | None:
    """Converts seconds to a Duration. None stays None: the service's default."""
    if seconds is None:
        return None
    if not hasattr(seconds, "__float__"):
        raise TypeError(f"a time is a number of seconds, not {type(seconds).__name__}: {seconds!r}")
    if math.isnan(seconds) or math.isinf(seconds):
        raise ValueError(f"{seconds} is not a number of seconds; leave it out for the service's default")
    nanos = round(seconds * 1e9)
    # Both parts must have the same sign.
    whole = abs(nanos) // 1_000_000_000 * (1 if nanos >= 0 else -1)
    return Duration(seconds=whole, nanos=nanos - whole * 1_000_000_000)


def seconds(value: Duration) -> float:
    """A Duration in seconds."""
    return value.seconds + value.nanos / 1e9


def time(value: Timestamp) -> datetime | None:
    """A Timestamp in UTC. None if it is not set."""
    if value.seconds == 0 and value.nanos == 0:
        return None
    return moment(value)


def moment(value: Timestamp) -> datetime:
    """A Timestamp in UTC, which is always set."""
    # Rounds down: rounded up, the last moment of the year 9999 would be out of range.
    return datetime.fromtimestamp(value.seconds, timezone.utc) + timedelta(microseconds=value.nanos // 1000)


def content(data: types.Content) -> bytes:
    """Returns bytes unchanged, and encodes text as UTF-8. Raises TypeError for anything else."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    # Callers without a type checker pass these as well.
    if isinstance(data, (bytearray, memoryview)):  # pyright: ignore[reportUnnecessaryIsInstance]
        return bytes(data)
    raise TypeError(f"the data must be str or bytes, not {type(data).__name__}; files.upload takes open files")


def path(given: types.Path) -> str | bytes:
    """A path for the wire."""
    return given.as_posix() if isinstance(given, PurePath) else given


def texts(name: str, given: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Returns the mapping. Raises TypeError that names a value that is not text; protobuf's error does not."""
    for key, each in (given or {}).items():
        if not isinstance(each, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{name}[{key!r}] must be a str, not {type(each).__name__}")
    return given


def working_dir(given: str | PurePath) -> str:
    """A directory for the wire."""
    return given.as_posix() if isinstance(given, PurePath) else given


def argv(command: Sequence[str]) -> Sequence[str]:
    """Returns the program with its arguments. Raises TypeError that says what is no text; protobuf's error does not."""
    # Callers without a type checker pass anything.
    if isinstance(command, (bytes, bytearray)) or not isinstance(command, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the command must be a str or a sequence of str, not {type(command).__name__}")
    for index, each in enumerate(command):
        if not isinstance(each, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"command[{index}] must be a str, not {type(each).__name__}")
    return command


#: Numbers on Linux, where other systems have others for some.
_SIGNALS = {
    "SIGHUP": 1,
    "SIGINT": 2,
    "SIGQUIT": 3,
    "SIGILL": 4,
    "SIGTRAP": 5,
    "SIGABRT": 6,
    "SIGBUS": 7,
    "SIGFPE": 8,
    "SIGKILL": 9,
    "SIGUSR1": 10,
    "SIGSEGV": 11,
    "SIGUSR2": 12,
    "SIGPIPE": 13,
    "SIGALRM": 14,
    "SIGTERM": 15,
    "SIGSTKFLT": 16,
    "SIGCHLD": 17,
    "SIGCONT": 18,
    "SIGSTOP": 19,
    "SIGTSTP": 20,
    "SIGTTIN": 21,
    "SIGTTOU": 22,
    "SIGURG": 23,
    "SIGXCPU": 24,
    "SIGXFSZ": 25,
    "SIGVTALRM": 26,
    "SIGPROF": 27,
    "SIGWINCH": 28,
    "SIGIO": 29,
    "SIGPWR": 30,
    "SIGSYS": 31,
}


def signal_number(given: int | str) -> int:
    """A signal's number on Linux. The client's system may have another number for the name."""
    name = given if isinstance(given, str) else str(getattr(given, "name", ""))
    if name in _SIGNALS:
        return _SIGNALS[name]
    if isinstance(given, str):
        raise ValueError(f"{given!r} is not a signal: give its number, or a name such as SIGTERM")
    return given


def struct(values: Mapping[str, types.Json] | None) -> Struct | None:
    """A mapping as a Struct."""
    if values is None:
        return None
    if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a mapping from names to JSON is needed, not {type(values).__name__}")
    return Struct(fields={key: value(each) for key, each in values.items()})


def value(json: types.Json) -> Value:
    """JSON as a Value. Raises TypeError for anything that is not JSON."""
    if json is None:
        return Value(null_value=NullValue.NULL_VALUE)
    if isinstance(json, bool):
        return Value(bool_value=json)
    if isinstance(json, (int, float)):
        return Value(number_value=json)
    if isinstance(json, str):
        return Value(string_value=json)
    if isinstance(json, Mapping):
        return Value(struct_value=struct(json))
    # Untyped callers may pass such values anyway.
    if isinstance(json, (list, tuple)):  # pyright: ignore[reportUnnecessaryIsInstance]
        return Value(list_value=ListValue(values=[value(each) for each in json]))
    raise TypeError(f"a {type(json).__name__} is not JSON: give None, bool, int, float, str, list or dict")


def json_of(given: Value) -> types.Json:
    """A Value as JSON; whole numbers are ints."""
    kind = given.WhichOneof("kind")
    if kind == "number_value":
        number = given.number_value
        return int(number) if number.is_integer() and abs(number) <= _LARGEST_WHOLE else number
    if kind == "string_value":
        return given.string_value
    if kind == "bool_value":
        return given.bool_value
    if kind == "struct_value":
        return dict_of(given.struct_value)
    if kind == "list_value":
        return [json_of(each) for each in given.list_value.values]
    return None


def dict_of(given: Struct) -> dict[str, types.Json]:
    """A Struct as a dict."""
    return {key: json_of(each) for key, each in given.fields.items()}


def spec_message(spec: types.SandboxSpec) -> sandbox_pb2.SandboxSpec:
    """A spec for the wire."""
    network = None
    if spec.network is not None:
        if spec.network not in _NETWORKS:
            raise ValueError(f'network is "NONE" or "EGRESS", not {spec.network!r}')
        network = sandbox_pb2.Network(mode=_NETWORKS[spec.network])
    return sandbox_pb2.SandboxSpec(
        image=spec.image,
        env=texts("env", spec.env),
        secret_env=texts("secret_env", spec.secret_env),
        working_dir=spec.working_dir,
        user=spec.user,
        resources=sandbox_pb2.Resources(
            memory_bytes=spec.memory_bytes,
            cpu_millis=spec.cpu_millis,
            pids_limit=spec.pids_limit,
            disk_bytes=spec.disk_bytes,
        ),
        network=network,
        egress_domains=spec.egress_domains,
        mounts=[_mount_message(mount) for mount in spec.mounts],
        labels=texts("labels", spec.labels),
        idle_timeout=duration(spec.idle_timeout),
        max_lifetime=duration(spec.max_lifetime),
        command_timeout=duration(spec.command_timeout),
        runtime=spec.runtime,
    )


def _mount_message(mount: types.Mount) -> sandbox_pb2.Mount:
    message = sandbox_pb2.Mount(target=mount.target, read_only=mount.read_only)
    if mount.workspace_id and mount.host_path:
        raise ValueError(f"the mount at {mount.target} has both a workspace_id and a host_path: give one of the two")
    if mount.workspace_id:
        message.workspace_id = mount.workspace_id
    if mount.host_path:
        message.host_path = mount.host_path
    return message


def spec_of(spec: sandbox_pb2.SandboxSpec) -> types.SandboxSpec:
    """A spec from the wire."""
    networks: dict[int, types.Network] = {
        sandbox_pb2.NETWORK_MODE_NONE: "NONE",
        sandbox_pb2.NETWORK_MODE_EGRESS: "EGRESS",
    }
    return types.SandboxSpec(
        image=spec.image,
        env=dict(spec.env),
        secret_env=dict(spec.secret_env),
        working_dir=spec.working_dir,
        user=spec.user,
        memory_bytes=spec.resources.memory_bytes,
        cpu_millis=spec.resources.cpu_millis,
        pids_limit=spec.resources.pids_limit,
        disk_bytes=spec.resources.disk_bytes,
        network=networks.get(spec.network.mode),
        egress_domains=tuple(spec.egress_domains),
        mounts=tuple(
            types.Mount(mount.target, mount.workspace_id, mount.host_path, mount.read_only)
            for mount in spec.mounts
        ),
        labels=dict(spec.labels),
        idle_timeout=seconds(spec.idle_timeout) if spec.HasField("idle_timeout") else None,
        max_lifetime=seconds(spec.max_lifetime) if spec.HasField("max_lifetime") else None,
        command_timeout=seconds(spec.command_timeout) if spec.HasField("command_timeout") else None,
        runtime=spec.runtime,
    )


def termination(given: sandbox_pb2.Termination) -> types.Termination:
    """How a sandbox ended."""
    cause = name_of(sandbox_pb2.TerminationCause, given.cause, "TERMINATION_CAUSE_")
    return types.Termination(cause, given.message, time(given.time))


def sandbox(given: sandbox_pb2.Sandbox) -> types.SandboxInfo:
    """A sandbox."""
    return types.SandboxInfo(
        sandbox_id=given.sandbox_id,
        state=name_of(sandbox_pb2.SandboxState, given.state, "SANDBOX_STATE_"),
        generation=given.generation,
        engine=given.engine,
        isolation=name_of(sandbox_pb2.IsolationLevel, given.isolation, "ISOLATION_LEVEL_"),
        owner=given.owner,
        create_time=time(given.create_time),
        last_used_time=time(given.last_used_time),
        expire_time=time(given.expire_time),
        active_operations=given.active_operations,
        termination=termination(given.termination) if given.HasField("termination") else None,
        # Not a lambda, so that results can be pickled.
        read_spec=functools.partial(spec_of, given.spec),
    )


def resource_usage(given: sandbox_pb2.ResourceUsage) -> types.ResourceUsage:
    """What a sandbox uses."""
    return types.ResourceUsage(
        memory_bytes=given.memory_bytes,
        memory_limit_bytes=given.memory_limit_bytes if given.HasField("memory_limit_bytes") else None,
        cpu_time=seconds(given.cpu_time),
        cpu_limit_millis=given.cpu_limit_millis if given.HasField("cpu_limit_millis") else None,
        processes=given.processes,
        process_limit=given.process_limit if given.HasField("process_limit") else None,
        measure_time=moment(given.measure_time),
    )


def stats(given: sandbox_pb2.GetStatsResponse) -> types.Stats:
    """The service's figures."""
    return types.Stats(
        total_sandboxes=given.total_sandboxes,
        active_operations=given.active_operations,
        max_sandboxes=given.max_sandboxes,
        idle_timeout=seconds(given.idle_timeout),
        cleanup_interval=seconds(given.cleanup_interval),
        is_shutting_down=given.is_shutting_down,
        sandboxes=tuple(
            types.SandboxUsage(each.sandbox_id, time(each.last_used), each.is_active)
            for each in given.sandboxes
        ),
        engine=given.engine.name,
    )


def sandbox_event(given: sandbox_pb2.WatchEventsResponse) -> types.SandboxEvent | None:
    """An event. None for a keepalive, and for events that this client does not know."""
    item = given.WhichOneof("item")
    if item == "trimmed":
        return types.SandboxEvent(given.trimmed.to_sequence, None, "", "TRIMMED")
    if item != "event":
        return None
    event = given.event
    return types.SandboxEvent(
        sequence=event.sequence,
        time=time(event.time),
        sandbox_id=event.sandbox_id,
        type=name_of(sandbox_pb2.SandboxEventType, event.type, "SANDBOX_EVENT_TYPE_"),
        termination=termination(event.termination) if event.HasField("termination") else None,
        pulled_bytes=event.image_pull.current_bytes,
        total_bytes=event.image_pull.total_bytes,
    )


def exit_status(given: process_pb2.ExitStatus) -> types.ExitStatus:
    """How a command ended."""
    return types.ExitStatus(
        cause=name_of(process_pb2.ExitCause, given.cause, "EXIT_CAUSE_"),
        exit_code=given.exit_code,
        signal=given.signal,
        duration=seconds(given.duration),
        stdout_bytes=given.stdout_bytes,
        stderr_bytes=given.stderr_bytes,
        message=given.message,
    )


def stream_name(stream: int) -> Literal["stdout", "stderr"]:
    """An output stream's name."""
    return "stderr" if stream == process_pb2.OUTPUT_STREAM_STDERR else "stdout"


def command_result(given: process_pb2.RunCommandResponse) -> types.CommandResult:
    """The result of a command."""
    return types.CommandResult(
        stdout_bytes=given.stdout,
        stderr_bytes=given.stderr,
        truncated=given.truncated,
        status=exit_status(given.exit_status),
        process_id=given.process_id,
        stdout_gap=_gap(given.stdout_gap) if given.HasField("stdout_gap") else None,
        stderr_gap=_gap(given.stderr_gap) if given.HasField("stderr_gap") else None,
    )


def _gap(given: process_pb2.Gap) -> types.Gap:
    return types.Gap(given.from_offset, given.to_offset)


def process(given: process_pb2.Process) -> types.ProcessInfo:
    """A process."""
    return types.ProcessInfo(
        process_id=given.process_id,
        sandbox_id=given.sandbox_id,
        command=tuple(given.argv.args) if given.HasField("argv") else given.shell,
        start_time=time(given.start_time),
        status=exit_status(given.exit_status) if given.HasField("exit_status") else None,
        stdout_bytes=given.stdout_bytes,
        stderr_bytes=given.stderr_bytes,
        has_terminal=given.has_terminal,
        run_id=given.run_id,
    )


def file(name: str, raw_name: bytes, given: file_pb2.FileInfo) -> types.FileInfo:
    """A file."""
    return types.FileInfo(
        name=name,
        raw_name=raw_name,
        kind=name_of(file_pb2.FileKind, given.kind, "FILE_KIND_"),
        size=given.size_bytes,
        mode=given.mode,
        uid=given.uid,
        gid=given.gid,
        modify_time=moment(given.modify_time) if given.HasField("modify_time") else None,
        link_target=given.link_target,
    )


def file_change(given: file_pb2.FileChange) -> types.FileChange:
    """A change of a watched directory."""
    return types.FileChange(
        type=name_of(file_pb2.FileChangeType, given.type, "FILE_CHANGE_TYPE_"),
        path=given.path,
        raw_path=given.raw_path,
        file=file(given.path, given.raw_path, given.file) if given.HasField("file") else None,
        time=time(given.time),
    )


def workspace_change(given: workspace_pb2.WorkspaceChange) -> types.WorkspaceChange:
    """An entry in which a workspace differs from another one."""
    path, raw = given.path, given.raw_path
    return types.WorkspaceChange(
        type=name_of(workspace_pb2.WorkspaceChangeType, given.type, "WORKSPACE_CHANGE_TYPE_"),
        path=path,
        raw_path=raw,
        differences=tuple(
            name_of(workspace_pb2.WorkspaceDifference, each, "WORKSPACE_DIFFERENCE_")
            for each in given.differences
        ),
        base_file=file(path, raw, given.base_file) if given.HasField("base_file") else None,
        file=file(path, raw, given.file) if given.HasField("file") else None,
    )


def workspace(given: workspace_pb2.Workspace) -> types.WorkspaceInfo:
    """A workspace."""
    return types.WorkspaceInfo(
        workspace_id=given.workspace_id,
        path=given.path,
        trace_refs=tuple(given.trace_refs),
        ref_count=given.ref_count,
        sandbox_id=given.sandbox_id,
        size=given.size_bytes if given.HasField("size_bytes") else None,
        create_time=time(given.create_time),
        update_time=time(given.update_time),
        owner=given.owner,
        quota=given.quota_bytes,
        over_quota=given.over_quota,
        has_shared=given.has_shared,
    )


def session(given: session_pb2.Session) -> types.SessionInfo:
    """A session."""
    return types.SessionInfo(
        session_id=given.session_id,
        name=given.name,
        worker_id=given.worker_id,
        resource_type=given.resource_type,
        status=name_of(session_pb2.SessionStatus, given.status, "SESSION_STATUS_"),
        config=dict_of(given.config),
        custom_name=given.custom_name,
        sandbox_id=given.sandbox_id,
        workspace_id=given.workspace_id,
        ttl=seconds(given.ttl),
        create_time=time(given.create_time),
        last_used_time=time(given.last_used_time),
        expire_time=time(given.expire_time),
        active_calls=given.active_calls,
        owner=given.owner,
        secrets=types.SessionSecrets(dict(given.secrets.env), given.secrets.redact)
        if given.HasField("secrets")
        else None,
    )


def resource_message(given: types.SessionResource) -> session_pb2.SessionResource:
    """A requested session, for the wire."""
    return session_pb2.SessionResource(
        resource_type=given.resource_type,
        config=struct(given.config),
        custom_name=given.custom_name,
        sandbox_id=given.sandbox_id,
        workspace_id=given.workspace_id,
        ttl=duration(given.ttl),
        secrets=secrets_message(given.secrets),
    )


def secrets_message(given: types.SessionSecrets | None) -> session_pb2.SessionSecrets | None:
    """The secrets of a session, for the wire."""
    return None if given is None else session_pb2.SessionSecrets(env=given.env, redact=given.redact)


def session_results(given: Sequence[session_pb2.SessionResult]) -> list[types.SessionResult]:
    """What a call did to each session."""
    return [
        types.SessionResult(
            resource_type=each.resource_type,
            status=result_status(each.status),
            session=session(each.session) if each.HasField("session") else None,
            error=error_of_failure(each.failure) if each.HasField("failure") else None,
        )
        for each in given
    ]


def result_status(given: int) -> str:
    """What a call did to a session."""
    return name_of(session_pb2.SessionResultStatus, given, "SESSION_RESULT_STATUS_")


def reinitialized(given: session_pb2.ReinitializeSessionResponse) -> types.Reinitialized:
    """A session that replaced another."""
    return types.Reinitialized(
        status=result_status(given.status),
        resource_type=given.resource_type,
        old_session_id=given.old_session_id,
        new_session_id=given.new_session_id,
        config_applied=dict_of(given.config_applied),
        session=session(given.session) if given.HasField("session") else None,
        error=error_of_failure(given.failure) if given.HasField("failure") else None,
    )


def tool_result(given: session_pb2.ExecuteToolResponse) -> types.ToolResult:
    """The result of a tool."""
    meta = given.meta
    return types.ToolResult(
        code=given.code,
        message=given.message,
        data=json_of(given.data),
        attachments=tuple(
            types.Attachment(each.media_type, each.content, each.name) for each in given.attachments
        ),
        meta=types.ToolMeta(
            tool=meta.tool,
            full_name=meta.full_name,
            resource_type=meta.resource_type,
            session_id=meta.session_id,
            temporary_session=meta.temporary_session,
            trace_id=meta.trace_id,
            execution_time_ms=meta.execution_time_ms,
        ),
    )


def batch_result(given: session_pb2.ToolCallResult) -> types.BatchResult:
    """The result of one call of a batch."""
    outcome = given.WhichOneof("outcome")
    if outcome == "response":
        return tool_result(given.response)
    if outcome == "failure":
        return error_of_failure(given.failure)
    if outcome == "skipped":
        return None
    return BerthError("this client is older than the service and does not know what became of the call")


def tool(given: session_pb2.Tool) -> types.ToolInfo:
    """A tool."""
    return types.ToolInfo(
        given.name, given.short_name, given.resource_type, given.description, dict_of(given.params_schema)
    )


def run_step(given: run_pb2.RunStep) -> types.RunStep:
    """A step of a run."""
    return types.RunStep(
        step=given.step,
        result=given.result,
        outcome=name_of(run_pb2.StepOutcome, given.outcome, "STEP_OUTCOME_"),
        stuck=given.stuck,
        start_time=time(given.start_time),
        end_time=time(given.end_time),
    )


def run(given: run_pb2.Run) -> types.RunInfo:
    """A run."""
    return types.RunInfo(
        run_id=given.run_id,
        name=given.name,
        state=run_state(given.state),
        outcome=run_outcome(given.outcome),
        message=given.message,
        current_step=given.current_step,
        max_steps=given.max_steps,
        duplicate_threshold=given.duplicate_threshold,
        step_timeout=seconds(given.step_timeout),
        max_duration=seconds(given.max_duration) if given.HasField("max_duration") else None,
        next_step_prompt=given.next_step_prompt,
        on_end=name_of(run_pb2.RunOnEnd, given.on_end, "RUN_ON_END_"),
        steps=tuple(run_step(each) for each in given.steps),
        summary=given.summary,
        sandbox_id=given.sandbox_id,
        create_time=time(given.create_time),
        start_time=time(given.start_time),
        end_time=time(given.end_time),
        lease_expire_time=time(given.lease_expire_time),
        owner=given.owner,
        message_count=given.message_count,
        messages=tuple(
            types.RunMessage(name_of(run_pb2.RunMessageRole, each.role, "RUN_MESSAGE_ROLE_"), each.content)
            for each in given.messages
        ),
    )


def run_state(given: int) -> str:
    """The state of a run."""
    return name_of(run_pb2.RunState, given, "RUN_STATE_")


def run_outcome(given: int) -> str:
    """How a run ended."""
    return name_of(run_pb2.RunOutcome, given, "RUN_OUTCOME_")


def next_step(given: run_pb2.NextStep) -> types.NextStep:
    """A step that the service handed out."""
    return types.NextStep(given.step, given.prompt, time(given.lease_expire_time), given.start_id)


def report(given: run_pb2.ReportStepResponse) -> types.Report:
    """How a run continues."""
    end = given.run_end
    return types.Report(
        next_step=next_step(given.next_step) if given.HasField("next_step") else None,
        run_end=types.RunEnd(run_state(end.state), run_outcome(end.outcome), end.message, end.summary)
        if given.HasField("run_end")
        else None,
        stuck=given.stuck,
    )


def run_event(given: run_pb2.WatchRunResponse) -> types.RunEvent | None:
    """An event of a run. None for a keepalive, and for events that this client does not know."""
    item = given.WhichOneof("item")
    if item == "trimmed":
        return types.RunEvent(given.trimmed.to_sequence, None, "TRIMMED", "", "", "", 0, None, "")
    if item != "event":
        return None
    event = given.event
    return types.RunEvent(
        sequence=event.sequence,
        time=time(event.time),
        type=name_of(run_pb2.RunEventType, event.type, "RUN_EVENT_TYPE_"),
        state=run_state(event.state),
        outcome=run_outcome(event.outcome),
        message=event.message,
        current_step=event.current_step,
        step=run_step(event.step) if event.HasField("step") else None,
        sandbox_id=event.sandbox_id,
    )
