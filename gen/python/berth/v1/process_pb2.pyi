from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
EXIT_CAUSE_CANCELED: ExitCause
EXIT_CAUSE_ENGINE_LOST: ExitCause
EXIT_CAUSE_EXITED: ExitCause
EXIT_CAUSE_OUTPUT_LIMIT: ExitCause
EXIT_CAUSE_OUT_OF_MEMORY: ExitCause
EXIT_CAUSE_SANDBOX_TERMINATED: ExitCause
EXIT_CAUSE_SIGNALED: ExitCause
EXIT_CAUSE_TIMED_OUT: ExitCause
EXIT_CAUSE_UNSPECIFIED: ExitCause
ON_DISCONNECT_DETACH: OnDisconnect
ON_DISCONNECT_KILL: OnDisconnect
ON_DISCONNECT_UNSPECIFIED: OnDisconnect
OUTPUT_STREAM_STDERR: OutputStream
OUTPUT_STREAM_STDOUT: OutputStream
OUTPUT_STREAM_UNSPECIFIED: OutputStream

class Argv(_message.Message):
    __slots__ = ["args"]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    args: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, args: _Optional[_Iterable[str]] = ...) -> None: ...

class AttachProcessRequest(_message.Message):
    __slots__ = ["process_id", "stderr_offset", "stdout_offset"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    STDERR_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STDOUT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    stderr_offset: int
    stdout_offset: int
    def __init__(self, process_id: _Optional[str] = ..., stdout_offset: _Optional[int] = ..., stderr_offset: _Optional[int] = ...) -> None: ...

class AttachProcessResponse(_message.Message):
    __slots__ = ["exited", "gap", "keepalive", "output", "started"]
    EXITED_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    exited: ExitStatus
    gap: Gap
    keepalive: Keepalive
    output: Output
    started: Started
    def __init__(self, started: _Optional[_Union[Started, _Mapping]] = ..., output: _Optional[_Union[Output, _Mapping]] = ..., gap: _Optional[_Union[Gap, _Mapping]] = ..., exited: _Optional[_Union[ExitStatus, _Mapping]] = ..., keepalive: _Optional[_Union[Keepalive, _Mapping]] = ...) -> None: ...

class ExecRequest(_message.Message):
    __slots__ = ["argv", "disconnect_grace", "env", "generation", "keep_stdin_open", "on_disconnect", "output_limit_bytes", "request_id", "run_id", "sandbox_id", "shell", "stdin", "terminal", "timeout", "user", "working_dir"]
    class EnvEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ARGV_FIELD_NUMBER: _ClassVar[int]
    DISCONNECT_GRACE_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KEEP_STDIN_OPEN_FIELD_NUMBER: _ClassVar[int]
    ON_DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SHELL_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIR_FIELD_NUMBER: _ClassVar[int]
    argv: Argv
    disconnect_grace: _duration_pb2.Duration
    env: _containers.ScalarMap[str, str]
    generation: int
    keep_stdin_open: bool
    on_disconnect: OnDisconnect
    output_limit_bytes: int
    request_id: str
    run_id: str
    sandbox_id: str
    shell: str
    stdin: bytes
    terminal: Terminal
    timeout: _duration_pb2.Duration
    user: str
    working_dir: str
    def __init__(self, sandbox_id: _Optional[str] = ..., shell: _Optional[str] = ..., argv: _Optional[_Union[Argv, _Mapping]] = ..., env: _Optional[_Mapping[str, str]] = ..., working_dir: _Optional[str] = ..., user: _Optional[str] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., stdin: _Optional[bytes] = ..., keep_stdin_open: bool = ..., terminal: _Optional[_Union[Terminal, _Mapping]] = ..., on_disconnect: _Optional[_Union[OnDisconnect, str]] = ..., disconnect_grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., output_limit_bytes: _Optional[int] = ..., run_id: _Optional[str] = ..., request_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class ExecResponse(_message.Message):
    __slots__ = ["exited", "gap", "keepalive", "output", "started"]
    EXITED_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    exited: ExitStatus
    gap: Gap
    keepalive: Keepalive
    output: Output
    started: Started
    def __init__(self, started: _Optional[_Union[Started, _Mapping]] = ..., output: _Optional[_Union[Output, _Mapping]] = ..., gap: _Optional[_Union[Gap, _Mapping]] = ..., exited: _Optional[_Union[ExitStatus, _Mapping]] = ..., keepalive: _Optional[_Union[Keepalive, _Mapping]] = ...) -> None: ...

class ExitStatus(_message.Message):
    __slots__ = ["cause", "duration", "exit_code", "message", "signal", "stderr_bytes", "stdout_bytes"]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    STDERR_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDOUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    cause: ExitCause
    duration: _duration_pb2.Duration
    exit_code: int
    message: str
    signal: int
    stderr_bytes: int
    stdout_bytes: int
    def __init__(self, cause: _Optional[_Union[ExitCause, str]] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., stdout_bytes: _Optional[int] = ..., stderr_bytes: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class Gap(_message.Message):
    __slots__ = ["from_offset", "stream", "to_offset"]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    from_offset: int
    stream: OutputStream
    to_offset: int
    def __init__(self, stream: _Optional[_Union[OutputStream, str]] = ..., from_offset: _Optional[int] = ..., to_offset: _Optional[int] = ...) -> None: ...

class GetProcessRequest(_message.Message):
    __slots__ = ["process_id"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    def __init__(self, process_id: _Optional[str] = ...) -> None: ...

class GetProcessResponse(_message.Message):
    __slots__ = ["process"]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    process: Process
    def __init__(self, process: _Optional[_Union[Process, _Mapping]] = ...) -> None: ...

class Keepalive(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ListProcessesRequest(_message.Message):
    __slots__ = ["page_size", "page_token", "sandbox_id", "show_ended"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SHOW_ENDED_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    sandbox_id: str
    show_ended: bool
    def __init__(self, sandbox_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., show_ended: bool = ...) -> None: ...

class ListProcessesResponse(_message.Message):
    __slots__ = ["next_page_token", "processes"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    processes: _containers.RepeatedCompositeFieldContainer[Process]
    def __init__(self, processes: _Optional[_Iterable[_Union[Process, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ["data", "offset", "stream"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offset: int
    stream: OutputStream
    def __init__(self, stream: _Optional[_Union[OutputStream, str]] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Process(_message.Message):
    __slots__ = ["argv", "exit_status", "has_terminal", "process_id", "run_id", "sandbox_id", "shell", "start_time", "stderr_bytes", "stdout_bytes"]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    EXIT_STATUS_FIELD_NUMBER: _ClassVar[int]
    HAS_TERMINAL_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SHELL_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    STDERR_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDOUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    argv: Argv
    exit_status: ExitStatus
    has_terminal: bool
    process_id: str
    run_id: str
    sandbox_id: str
    shell: str
    start_time: _timestamp_pb2.Timestamp
    stderr_bytes: int
    stdout_bytes: int
    def __init__(self, process_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., shell: _Optional[str] = ..., argv: _Optional[_Union[Argv, _Mapping]] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., exit_status: _Optional[_Union[ExitStatus, _Mapping]] = ..., stdout_bytes: _Optional[int] = ..., stderr_bytes: _Optional[int] = ..., has_terminal: bool = ..., run_id: _Optional[str] = ...) -> None: ...

class ResizeTerminalRequest(_message.Message):
    __slots__ = ["columns", "process_id", "request_id", "rows"]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    columns: int
    process_id: str
    request_id: str
    rows: int
    def __init__(self, request_id: _Optional[str] = ..., process_id: _Optional[str] = ..., columns: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class ResizeTerminalResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class RunCommandRequest(_message.Message):
    __slots__ = ["argv", "env", "generation", "max_output_bytes", "request_id", "run_id", "sandbox_id", "shell", "stdin", "timeout", "user", "working_dir"]
    class EnvEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ARGV_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SHELL_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIR_FIELD_NUMBER: _ClassVar[int]
    argv: Argv
    env: _containers.ScalarMap[str, str]
    generation: int
    max_output_bytes: int
    request_id: str
    run_id: str
    sandbox_id: str
    shell: str
    stdin: bytes
    timeout: _duration_pb2.Duration
    user: str
    working_dir: str
    def __init__(self, sandbox_id: _Optional[str] = ..., shell: _Optional[str] = ..., argv: _Optional[_Union[Argv, _Mapping]] = ..., env: _Optional[_Mapping[str, str]] = ..., working_dir: _Optional[str] = ..., user: _Optional[str] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., stdin: _Optional[bytes] = ..., max_output_bytes: _Optional[int] = ..., run_id: _Optional[str] = ..., request_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class RunCommandResponse(_message.Message):
    __slots__ = ["exit_status", "process_id", "stderr", "stderr_gap", "stdout", "stdout_gap", "truncated"]
    EXIT_STATUS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    STDERR_GAP_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDOUT_GAP_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    exit_status: ExitStatus
    process_id: str
    stderr: bytes
    stderr_gap: Gap
    stdout: bytes
    stdout_gap: Gap
    truncated: bool
    def __init__(self, stdout: _Optional[bytes] = ..., stderr: _Optional[bytes] = ..., exit_status: _Optional[_Union[ExitStatus, _Mapping]] = ..., truncated: bool = ..., stdout_gap: _Optional[_Union[Gap, _Mapping]] = ..., stderr_gap: _Optional[_Union[Gap, _Mapping]] = ..., process_id: _Optional[str] = ...) -> None: ...

class SignalProcessRequest(_message.Message):
    __slots__ = ["process_id", "request_id", "signal"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    request_id: str
    signal: int
    def __init__(self, request_id: _Optional[str] = ..., process_id: _Optional[str] = ..., signal: _Optional[int] = ...) -> None: ...

class SignalProcessResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Started(_message.Message):
    __slots__ = ["process_id", "start_time"]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    process_id: str
    start_time: _timestamp_pb2.Timestamp
    def __init__(self, process_id: _Optional[str] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Terminal(_message.Message):
    __slots__ = ["columns", "rows"]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    columns: int
    rows: int
    def __init__(self, columns: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class WriteStdinRequest(_message.Message):
    __slots__ = ["close", "data", "offset", "process_id", "request_id"]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    close: bool
    data: bytes
    offset: int
    process_id: str
    request_id: str
    def __init__(self, request_id: _Optional[str] = ..., process_id: _Optional[str] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., close: bool = ...) -> None: ...

class WriteStdinResponse(_message.Message):
    __slots__ = ["offset"]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class OutputStream(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ExitCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class OnDisconnect(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
