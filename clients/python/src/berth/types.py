"""What the client takes and returns: plain, frozen records.

Durations are seconds, times are `datetime` in UTC, sizes are bytes. States, causes and kinds are the names of the
service's enums without their prefix, such as "RUNNING". A value that this client does not know, from a newer service,
is "UNKNOWN_" and its number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import PurePath
from typing import Literal, Union

from berth.errors import BerthError

Json = Union[None, bool, int, float, str, "list[Json]", "dict[str, Json]"]
"""JSON values. Whole numbers are ints."""

Command = Union[str, Sequence[str]]
"""A command line for /bin/sh, or a program and its arguments, run without a shell."""

Content = Union[bytes, bytearray, memoryview, str]
"""Bytes, or text, which is sent as UTF-8."""

Path = Union[str, bytes, PurePath]
"""A path in a sandbox, absolute or relative to its working directory; bytes if it is not UTF-8."""

Network = Literal["NONE", "EGRESS"]


@dataclass(frozen=True)
class Mount:
    """A workspace or a directory of the host to mount in a sandbox: set one of the two."""

    #: Where to mount it: an absolute path in the sandbox.
    target: str
    #: A workspace's id.
    workspace_id: str = ""
    #: A directory on the service's machine, below one that the operator allowed.
    host_path: str = ""
    read_only: bool = False


@dataclass(frozen=True)
class SandboxSpec:
    """The settings of a sandbox. Unset ones take the service's defaults."""

    #: The image to start from, as Docker names it. Default: the service's.
    image: str = ""
    #: Environment of every command.
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    #: Where commands start. Default: /workspace.
    working_dir: str = ""
    #: The user of commands: a name or "uid[:gid]". Default: the image's.
    user: str = ""
    #: Memory in bytes. Default: 512 MiB.
    memory_bytes: int = 0
    #: CPU time in thousandths of a core. Default: 1000.
    cpu_millis: int = 0
    #: How many processes may exist at once.
    pids_limit: int = 0
    #: Disk in bytes.
    disk_bytes: int = 0
    #: What it can reach: "NONE" (the default), or "EGRESS" for public addresses.
    network: Network | None = None
    #: The only domains it may reach, over HTTP and HTTPS: "example.org", "*.example.org" or "example.org:8443".
    egress_domains: Sequence[str] = ()
    #: Variables of every command, each with the name of the service's secret that is its value.
    secret_env: Mapping[str, str] = field(default_factory=dict[str, str])
    mounts: Sequence[Mount] = ()
    #: For `sandboxes.list`.
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    #: Seconds without use after which it is deleted. Default: 1 hour.
    idle_timeout: float | None = None
    #: Seconds that it may live. Default: no limit.
    max_lifetime: float | None = None
    #: Default timeout of commands in seconds. Default: 300.
    command_timeout: float | None = None
    #: An OCI runtime that the operator allowed, such as "runsc".
    runtime: str = ""


@dataclass(frozen=True)
class Termination:
    """How a sandbox ended."""

    #: DELETED, IDLE_TIMEOUT, MAX_LIFETIME, OUT_OF_MEMORY, EXITED, REMOVED_EXTERNALLY, ENGINE_LOST,
    #: CREATE_FAILED, SERVER_SHUTDOWN or UNCONTROLLABLE.
    cause: str
    #: One sentence for people.
    message: str
    time: datetime | None


@dataclass(frozen=True)
class SandboxInfo:
    """The data of a sandbox."""

    sandbox_id: str
    #: CREATING, RUNNING, PAUSED, DELETING or TERMINATED.
    state: str
    #: The number of the container behind the id, from 1.
    generation: int
    #: "docker", "bubblewrap" or "kubernetes".
    engine: str
    #: NAMESPACE, CONTAINER, USER_KERNEL or VIRTUAL_MACHINE.
    isolation: str
    owner: str
    create_time: datetime | None
    last_used_time: datetime | None
    #: When it will be deleted if nothing uses it. None: it is in use, has ended, or never expires.
    expire_time: datetime | None
    active_operations: int
    #: Set in state TERMINATED only.
    termination: Termination | None
    #: Reads the spec on demand: most calls that return one do not need it.
    read_spec: Callable[[], SandboxSpec] = field(repr=False, compare=False)

    @cached_property
    def spec(self) -> SandboxSpec:
        """The effective spec, with defaults filled in."""
        return self.read_spec()


@dataclass(frozen=True)
class ResourceUsage:
    """What a sandbox used when it was measured, and its limits. A limit is None if the service enforces none."""

    #: Bytes, without file cache that the kernel can reclaim.
    memory_bytes: int
    memory_limit_bytes: int | None
    #: Seconds of CPU time of all cores together, since the sandbox started.
    cpu_time: float
    #: In thousandths of a core.
    cpu_limit_millis: int | None
    #: Processes and threads.
    processes: int
    process_limit: int | None
    #: When it was measured, by the service's clock.
    measure_time: datetime


@dataclass(frozen=True)
class SandboxUsage:
    """How a sandbox is used."""

    sandbox_id: str
    last_used: datetime | None
    is_active: bool


@dataclass(frozen=True)
class Stats:
    """The figures of the service."""

    total_sandboxes: int
    active_operations: int
    max_sandboxes: int
    #: Seconds.
    idle_timeout: float
    #: Seconds.
    cleanup_interval: float
    is_shutting_down: bool
    sandboxes: tuple[SandboxUsage, ...]
    #: "docker", "bubblewrap" or "kubernetes".
    engine: str


@dataclass(frozen=True)
class SandboxEvent:
    """An event of a sandbox."""

    sequence: int
    time: datetime | None
    sandbox_id: str
    #: CREATING, IMAGE_PULL, RUNNING, PAUSED, RESUMED, UPDATED, DELETING, TERMINATED, WORKSPACE_OVER_QUOTA,
    #: WORKSPACE_WITHIN_QUOTA, SHARED_OVER_QUOTA, SHARED_WITHIN_QUOTA; or TRIMMED: events before this
    #: sequence are lost.
    type: str
    termination: Termination | None = None
    #: For IMAGE_PULL: bytes fetched, and bytes known to be needed.
    pulled_bytes: int = 0
    total_bytes: int = 0


@dataclass(frozen=True)
class ExitStatus:
    """How a command ended."""

    #: EXITED, SIGNALED, TIMED_OUT, OUT_OF_MEMORY, OUTPUT_LIMIT, CANCELED, SANDBOX_TERMINATED or ENGINE_LOST.
    cause: str
    #: 0 to 255; 128 + signal if a signal ended it; -1 if unknown.
    exit_code: int
    #: The signal that ended it; 0 if none did.
    signal: int
    #: How many seconds it ran.
    duration: float
    #: Bytes it wrote to each stream, including those not kept.
    stdout_bytes: int
    stderr_bytes: int
    #: One sentence for people, if the cause does not say enough.
    message: str

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.cause == "EXITED" and self.exit_code == 0


@dataclass(frozen=True)
class Chunk:
    """Bytes that a command wrote, unchanged and in order within each stream."""

    #: All output of a command with a terminal is stdout.
    stream: Literal["stdout", "stderr"]
    #: Offset of the first byte in the stream.
    offset: int
    data: bytes
    #: The bytes as UTF-8 text. An incomplete character comes with the next chunk of its stream; bytes that are not
    #: UTF-8 are U+FFFD.
    text: str
    #: Missing bytes right before these, which the service no longer keeps. Only if the reader came late.
    lost: int = 0


@dataclass(frozen=True)
class Gap:
    """Bytes of a stream that are missing."""

    #: Offset of the first missing byte in the stream.
    from_offset: int
    #: Offset of the first byte after them.
    to_offset: int


@dataclass(frozen=True)
class CommandResult:
    """The result of a command."""

    #: The output as bytes. As text, bytes that are not UTF-8 are U+FFFD. If `truncated`: head and tail.
    stdout_bytes: bytes
    stderr_bytes: bytes
    #: Whether bytes of either stream are missing.
    truncated: bool
    status: ExitStatus
    process_id: str
    #: The bytes that are missing between head and tail. None: none are.
    stdout_gap: Gap | None = None
    stderr_gap: Gap | None = None

    @property
    def stdout(self) -> str:
        """What it wrote to stdout, as text."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """What it wrote to stderr, as text."""
        return self.stderr_bytes.decode(errors="replace")

    @property
    def exit_code(self) -> int:
        """See `ExitStatus.exit_code`."""
        return self.status.exit_code

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.status.ok

    def check(self) -> CommandResult:
        """Returns itself, or raises CommandError unless it is ok."""
        if not self.ok:
            raise CommandError(self)
        return self


class CommandError(Exception):
    """A command did not end with exit code 0. Raised only by `CommandResult.check`."""

    result: CommandResult

    def __init__(self, result: CommandResult) -> None:
        status = result.status
        how = f"exit code {status.exit_code}" if status.cause == "EXITED" else status.cause
        last = result.stderr.strip().rsplit("\n", 1)[-1]
        super().__init__(f"the command ended with {how}" + (f": {last}" if last else ""))
        self.result = result

    def __reduce__(self) -> tuple[type[CommandError], tuple[CommandResult]]:
        return type(self), (self.result,)


@dataclass(frozen=True)
class ProcessInfo:
    """The data of a command's process."""

    process_id: str
    sandbox_id: str
    command: str | tuple[str, ...]
    start_time: datetime | None
    #: None while it runs.
    status: ExitStatus | None
    #: Bytes written so far.
    stdout_bytes: int
    stderr_bytes: int
    has_terminal: bool
    run_id: str


@dataclass(frozen=True)
class FileInfo:
    """The metadata of a file."""

    #: Its name: its path for `stat`, its name in the directory for `list`, its path below the watched directory
    #: for `watch`, otherwise the path that the call was given. Bytes that are not UTF-8 are U+FFFD; `raw_name` is
    #: exact.
    name: str
    raw_name: bytes
    #: REGULAR, DIRECTORY, SYMLINK, FIFO, SOCKET, CHARACTER_DEVICE or BLOCK_DEVICE.
    kind: str
    size: int
    #: Permission bits, such as 0o644.
    mode: int
    uid: int
    gid: int
    modify_time: datetime | None
    #: Target of a symbolic link.
    link_target: str

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.kind == "DIRECTORY"

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return self.kind == "REGULAR"


@dataclass(frozen=True)
class FileChange:
    """A change in a watched directory."""

    #: CREATED, MODIFIED or REMOVED.
    type: str
    #: Relative to the watched directory.
    path: str
    raw_path: bytes
    #: Its metadata after the change. None for REMOVED.
    file: FileInfo | None
    time: datetime | None


@dataclass(frozen=True)
class Unpacked:
    """What was unpacked from an archive."""

    entry_count: int
    #: Total size of its regular files.
    size: int


@dataclass(frozen=True)
class WorkspaceInfo:
    """The data of a workspace."""

    workspace_id: str
    #: Absolute path of its directory on the service's machine; on Kubernetes the namespace and name of its claim.
    path: str
    trace_refs: tuple[str, ...]
    ref_count: int
    #: Its live sandbox. Empty if it has none.
    sandbox_id: str
    #: Disk space of its files at the last measurement. None before the first.
    size: int | None
    create_time: datetime | None
    update_time: datetime | None
    owner: str
    #: The limit for its files in bytes. 0: no limit.
    quota: int
    over_quota: bool
    #: Whether its sandboxes have ``/shared``.
    has_shared: bool = True


@dataclass(frozen=True)
class WorkspaceChange:
    """An entry that differs between two workspaces."""

    #: ADDED, REMOVED or MODIFIED.
    type: str
    #: Relative to the workspace. Bytes that are not UTF-8 are U+FFFD; `raw_path` is exact.
    path: str
    raw_path: bytes
    #: How it differs: KIND, CONTENT, MODE, OWNER, LINK_TARGET, DEVICE. Empty unless it is MODIFIED.
    differences: tuple[str, ...]
    #: Its metadata in the base; times in whole seconds. None for ADDED.
    base_file: FileInfo | None
    #: Its metadata in the workspace; times in whole seconds. None for REMOVED.
    file: FileInfo | None


@dataclass(frozen=True)
class BrokenWorkspace:
    """A workspace that cannot be used."""

    #: Empty for an entry of the workspaces root that does not belong to the service.
    workspace_id: str
    path: str
    #: What is wrong, and what to do.
    message: str


@dataclass(frozen=True)
class WorkspaceList:
    """All workspaces, in byte order of their ids."""

    workspaces: tuple[WorkspaceInfo, ...]
    broken: tuple[BrokenWorkspace, ...]


@dataclass(frozen=True)
class SessionInfo:
    """The data of a session."""

    session_id: str
    name: str
    worker_id: str
    resource_type: str
    #: INITIALIZING, ACTIVE or DESTROYING.
    status: str
    #: Its effective settings.
    config: dict[str, Json]
    custom_name: str
    sandbox_id: str
    workspace_id: str
    #: Seconds it lives after its last call or refresh.
    ttl: float
    create_time: datetime | None
    last_used_time: datetime | None
    #: None while a call runs or a view is open.
    expire_time: datetime | None
    active_calls: int
    owner: str
    #: None if it was created without secrets.
    secrets: SessionSecrets | None = None


@dataclass(frozen=True)
class SessionSecrets:
    """Secrets in the environment of a "bash", "python" or "code" session."""

    #: Variables, each with the name of the service's secret that is its value.
    env: Mapping[str, str]
    #: Whether those values are replaced by "[redacted]" in what tools return.
    redact: bool = False


@dataclass(frozen=True)
class SessionResource:
    """A session to create."""

    #: "bash", "python", "vm", "browser", "files" or another that `tools` returns.
    resource_type: str
    config: Mapping[str, Json] | None = None
    custom_name: str = ""
    #: The sandbox it lives in. Default: one that is created for it.
    sandbox_id: str = ""
    #: The workspace to mount in the sandbox that is created for it.
    workspace_id: str = ""
    #: Seconds it lives after its last call or refresh. Default 300.
    ttl: float | None = None
    secrets: SessionSecrets | None = None


@dataclass(frozen=True)
class SessionResult:
    """What a call did to one session."""

    resource_type: str
    #: CREATED, EXISTS, REINITIALIZED, REFRESHED, DESTROYED, NOT_FOUND or FAILED.
    status: str
    #: The session after the call. For a destroyed session, its last state.
    session: SessionInfo | None
    #: What went wrong.
    error: BerthError | None


@dataclass(frozen=True)
class Reinitialized:
    """A session that replaced another."""

    #: REINITIALIZED or FAILED.
    status: str
    resource_type: str
    #: Empty if there was none.
    old_session_id: str
    #: Empty for FAILED.
    new_session_id: str
    #: The new session's effective settings.
    config_applied: dict[str, Json]
    session: SessionInfo | None
    error: BerthError | None


@dataclass(frozen=True)
class Attachment:
    """Binary data that a tool returned, such as a screenshot."""

    #: Such as "image/png".
    media_type: str
    content: bytes
    #: Its name in the tool's data.
    name: str


@dataclass(frozen=True)
class ToolMeta:
    """How a tool ran."""

    tool: str
    full_name: str
    resource_type: str
    session_id: str
    temporary_session: bool
    trace_id: str
    execution_time_ms: int


@dataclass(frozen=True)
class ToolResult:
    """The result of a tool."""

    #: 0: success. 4001: the tool failed. 5006: it exceeded its timeout.
    code: int
    #: "success", or what went wrong.
    message: str
    data: Json
    attachments: tuple[Attachment, ...]
    meta: ToolMeta

    @property
    def ok(self) -> bool:
        """Whether `code` is 0. The result of a command, such as its exit code, is in `data`."""
        return self.code == 0


@dataclass(frozen=True)
class ToolOutput:
    """Bytes that a tool's program wrote."""

    stream: Literal["stdout", "stderr"]
    data: bytes


@dataclass(frozen=True)
class ToolCall:
    """One call of a batch."""

    #: Such as "vm:screenshot".
    tool: str
    params: Mapping[str, Json] | None = None
    #: Seconds.
    timeout: float | None = None
    trace_id: str = ""


#: The result of one call of a batch: the tool's, the reason why it did not run, or None if it was not started.
BatchResult = Union[ToolResult, BerthError, None]


@dataclass(frozen=True)
class ToolInfo:
    """One tool."""

    #: Its full name, such as "vm:screenshot".
    name: str
    short_name: str
    resource_type: str
    description: str
    #: JSON Schema of its parameters.
    params_schema: dict[str, Json]


@dataclass(frozen=True)
class ResourceType:
    """One type of session that the service offers."""

    name: str
    description: str
    #: JSON Schema of its config.
    config_schema: dict[str, Json]


@dataclass(frozen=True)
class Tools:
    """The types of sessions and their tools."""

    tools: tuple[ToolInfo, ...]
    resource_types: tuple[ResourceType, ...]


@dataclass(frozen=True)
class RunStep:
    """A reported step of a run."""

    step: int
    result: str
    #: CONTINUE, FINISHED or ERROR.
    outcome: str
    stuck: bool
    start_time: datetime | None
    end_time: datetime | None


@dataclass(frozen=True)
class RunMessage:
    """A message of the conversation."""

    #: USER, SYSTEM, ASSISTANT or TOOL.
    role: str
    content: str


@dataclass(frozen=True)
class RunInfo:
    """The data of a run."""

    run_id: str
    name: str
    #: IDLE, RUNNING, FINISHED or ERROR.
    state: str
    #: FINISHED, MAX_STEPS, ERROR, CANCELED, LEASE_EXPIRED or DEADLINE; UNSPECIFIED before the end.
    outcome: str
    message: str
    current_step: int
    max_steps: int
    duplicate_threshold: int
    #: Seconds.
    step_timeout: float
    max_duration: float | None
    next_step_prompt: str
    #: DELETE_SANDBOX or KEEP.
    on_end: str
    #: The newest: without the oldest if all have more than 1 MiB. Empty in `list`.
    steps: tuple[RunStep, ...]
    summary: str
    sandbox_id: str
    create_time: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    lease_expire_time: datetime | None
    owner: str
    message_count: int
    #: The newest: at most 100, and without the oldest if they have more than 1 MiB. Only of
    #: `get(…, include_messages=True)`.
    messages: tuple[RunMessage, ...]


@dataclass(frozen=True)
class NextStep:
    """A step that the service handed out."""

    #: Starts at 1.
    step: int
    prompt: str
    lease_expire_time: datetime | None
    #: Identifies this start of the run; return it with the report.
    start_id: str


@dataclass(frozen=True)
class RunEnd:
    """A run that is over."""

    state: str
    outcome: str
    message: str
    summary: str


@dataclass(frozen=True)
class Report:
    """How a run continues after a step: one of the two is set."""

    next_step: NextStep | None
    run_end: RunEnd | None
    #: Whether the run counts as stuck after the step.
    stuck: bool


@dataclass(frozen=True)
class RunEvent:
    """One event of a run."""

    sequence: int
    time: datetime | None
    #: CREATED, STARTED, STEP_REPORTED, ENDED, RESET, DELETED; or TRIMMED: events before this are lost.
    type: str
    state: str
    outcome: str
    message: str
    current_step: int
    step: RunStep | None
    sandbox_id: str
