from berth.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
RUN_EVENT_TYPE_CREATED: RunEventType
RUN_EVENT_TYPE_DELETED: RunEventType
RUN_EVENT_TYPE_ENDED: RunEventType
RUN_EVENT_TYPE_RESET: RunEventType
RUN_EVENT_TYPE_STARTED: RunEventType
RUN_EVENT_TYPE_STEP_REPORTED: RunEventType
RUN_EVENT_TYPE_UNSPECIFIED: RunEventType
RUN_MESSAGE_ROLE_ASSISTANT: RunMessageRole
RUN_MESSAGE_ROLE_SYSTEM: RunMessageRole
RUN_MESSAGE_ROLE_TOOL: RunMessageRole
RUN_MESSAGE_ROLE_UNSPECIFIED: RunMessageRole
RUN_MESSAGE_ROLE_USER: RunMessageRole
RUN_ON_END_DELETE_SANDBOX: RunOnEnd
RUN_ON_END_KEEP: RunOnEnd
RUN_ON_END_UNSPECIFIED: RunOnEnd
RUN_OUTCOME_CANCELED: RunOutcome
RUN_OUTCOME_DEADLINE: RunOutcome
RUN_OUTCOME_ERROR: RunOutcome
RUN_OUTCOME_FINISHED: RunOutcome
RUN_OUTCOME_LEASE_EXPIRED: RunOutcome
RUN_OUTCOME_MAX_STEPS: RunOutcome
RUN_OUTCOME_UNSPECIFIED: RunOutcome
RUN_STATE_ERROR: RunState
RUN_STATE_FINISHED: RunState
RUN_STATE_IDLE: RunState
RUN_STATE_RUNNING: RunState
RUN_STATE_UNSPECIFIED: RunState
STEP_OUTCOME_CONTINUE: StepOutcome
STEP_OUTCOME_ERROR: StepOutcome
STEP_OUTCOME_FINISHED: StepOutcome
STEP_OUTCOME_UNSPECIFIED: StepOutcome

class CancelRunRequest(_message.Message):
    __slots__ = ["request_id", "run_id"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    run_id: str
    def __init__(self, request_id: _Optional[str] = ..., run_id: _Optional[str] = ...) -> None: ...

class CancelRunResponse(_message.Message):
    __slots__ = ["run"]
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: Run
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ...) -> None: ...

class CreateRunRequest(_message.Message):
    __slots__ = ["duplicate_threshold", "generation", "max_duration", "max_steps", "name", "next_step_prompt", "on_end", "request_id", "sandbox_id", "sandbox_spec", "step_timeout"]
    DUPLICATE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MAX_DURATION_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_PROMPT_FIELD_NUMBER: _ClassVar[int]
    ON_END_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_SPEC_FIELD_NUMBER: _ClassVar[int]
    STEP_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    duplicate_threshold: int
    generation: int
    max_duration: _duration_pb2.Duration
    max_steps: int
    name: str
    next_step_prompt: str
    on_end: RunOnEnd
    request_id: str
    sandbox_id: str
    sandbox_spec: _sandbox_pb2.SandboxSpec
    step_timeout: _duration_pb2.Duration
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., max_steps: _Optional[int] = ..., duplicate_threshold: _Optional[int] = ..., step_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., next_step_prompt: _Optional[str] = ..., sandbox_spec: _Optional[_Union[_sandbox_pb2.SandboxSpec, _Mapping]] = ..., sandbox_id: _Optional[str] = ..., on_end: _Optional[_Union[RunOnEnd, str]] = ..., generation: _Optional[int] = ...) -> None: ...

class CreateRunResponse(_message.Message):
    __slots__ = ["run"]
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: Run
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ...) -> None: ...

class DeleteRunRequest(_message.Message):
    __slots__ = ["request_id", "run_id"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    run_id: str
    def __init__(self, request_id: _Optional[str] = ..., run_id: _Optional[str] = ...) -> None: ...

class DeleteRunResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GetRunRequest(_message.Message):
    __slots__ = ["include_messages", "run_id"]
    INCLUDE_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    include_messages: bool
    run_id: str
    def __init__(self, run_id: _Optional[str] = ..., include_messages: bool = ...) -> None: ...

class GetRunResponse(_message.Message):
    __slots__ = ["run"]
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: Run
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ["page_size", "page_token", "states"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    states: _containers.RepeatedScalarFieldContainer[RunState]
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., states: _Optional[_Iterable[_Union[RunState, str]]] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ["next_page_token", "runs"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    def __init__(self, runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class NextStep(_message.Message):
    __slots__ = ["lease_expire_time", "prompt", "step"]
    LEASE_EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    lease_expire_time: _timestamp_pb2.Timestamp
    prompt: str
    step: int
    def __init__(self, step: _Optional[int] = ..., prompt: _Optional[str] = ..., lease_expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ReportStepRequest(_message.Message):
    __slots__ = ["messages", "outcome", "request_id", "result", "run_id", "step"]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[RunMessage]
    outcome: StepOutcome
    request_id: str
    result: str
    run_id: str
    step: int
    def __init__(self, request_id: _Optional[str] = ..., run_id: _Optional[str] = ..., step: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[RunMessage, _Mapping]]] = ..., result: _Optional[str] = ..., outcome: _Optional[_Union[StepOutcome, str]] = ...) -> None: ...

class ReportStepResponse(_message.Message):
    __slots__ = ["next_step", "run_end", "stuck"]
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    RUN_END_FIELD_NUMBER: _ClassVar[int]
    STUCK_FIELD_NUMBER: _ClassVar[int]
    next_step: NextStep
    run_end: RunEnd
    stuck: bool
    def __init__(self, next_step: _Optional[_Union[NextStep, _Mapping]] = ..., run_end: _Optional[_Union[RunEnd, _Mapping]] = ..., stuck: bool = ...) -> None: ...

class ResetRunRequest(_message.Message):
    __slots__ = ["request_id", "run_id"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    run_id: str
    def __init__(self, request_id: _Optional[str] = ..., run_id: _Optional[str] = ...) -> None: ...

class ResetRunResponse(_message.Message):
    __slots__ = ["run"]
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: Run
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ["create_time", "current_step", "duplicate_threshold", "end_time", "lease_expire_time", "max_duration", "max_steps", "message", "message_count", "messages", "name", "next_step_prompt", "on_end", "outcome", "owner", "run_id", "sandbox_id", "start_time", "state", "step_timeout", "steps", "summary"]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    CURRENT_STEP_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    MAX_DURATION_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_PROMPT_FIELD_NUMBER: _ClassVar[int]
    ON_END_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    STEP_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    create_time: _timestamp_pb2.Timestamp
    current_step: int
    duplicate_threshold: int
    end_time: _timestamp_pb2.Timestamp
    lease_expire_time: _timestamp_pb2.Timestamp
    max_duration: _duration_pb2.Duration
    max_steps: int
    message: str
    message_count: int
    messages: _containers.RepeatedCompositeFieldContainer[RunMessage]
    name: str
    next_step_prompt: str
    on_end: RunOnEnd
    outcome: RunOutcome
    owner: str
    run_id: str
    sandbox_id: str
    start_time: _timestamp_pb2.Timestamp
    state: RunState
    step_timeout: _duration_pb2.Duration
    steps: _containers.RepeatedCompositeFieldContainer[RunStep]
    summary: str
    def __init__(self, run_id: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[_Union[RunState, str]] = ..., outcome: _Optional[_Union[RunOutcome, str]] = ..., message: _Optional[str] = ..., current_step: _Optional[int] = ..., max_steps: _Optional[int] = ..., duplicate_threshold: _Optional[int] = ..., step_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., next_step_prompt: _Optional[str] = ..., on_end: _Optional[_Union[RunOnEnd, str]] = ..., steps: _Optional[_Iterable[_Union[RunStep, _Mapping]]] = ..., summary: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., lease_expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., owner: _Optional[str] = ..., message_count: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[RunMessage, _Mapping]]] = ...) -> None: ...

class RunEnd(_message.Message):
    __slots__ = ["message", "outcome", "state", "summary"]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    message: str
    outcome: RunOutcome
    state: RunState
    summary: str
    def __init__(self, state: _Optional[_Union[RunState, str]] = ..., outcome: _Optional[_Union[RunOutcome, str]] = ..., message: _Optional[str] = ..., summary: _Optional[str] = ...) -> None: ...

class RunEvent(_message.Message):
    __slots__ = ["current_step", "message", "outcome", "run_id", "sandbox_id", "sequence", "state", "step", "time", "type"]
    CURRENT_STEP_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    current_step: int
    message: str
    outcome: RunOutcome
    run_id: str
    sandbox_id: str
    sequence: int
    state: RunState
    step: RunStep
    time: _timestamp_pb2.Timestamp
    type: RunEventType
    def __init__(self, sequence: _Optional[int] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., run_id: _Optional[str] = ..., type: _Optional[_Union[RunEventType, str]] = ..., state: _Optional[_Union[RunState, str]] = ..., outcome: _Optional[_Union[RunOutcome, str]] = ..., message: _Optional[str] = ..., current_step: _Optional[int] = ..., step: _Optional[_Union[RunStep, _Mapping]] = ..., sandbox_id: _Optional[str] = ...) -> None: ...

class RunMessage(_message.Message):
    __slots__ = ["content", "role"]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    content: str
    role: RunMessageRole
    def __init__(self, role: _Optional[_Union[RunMessageRole, str]] = ..., content: _Optional[str] = ...) -> None: ...

class RunStep(_message.Message):
    __slots__ = ["end_time", "outcome", "result", "start_time", "step", "stuck"]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STUCK_FIELD_NUMBER: _ClassVar[int]
    end_time: _timestamp_pb2.Timestamp
    outcome: StepOutcome
    result: str
    start_time: _timestamp_pb2.Timestamp
    step: int
    stuck: bool
    def __init__(self, step: _Optional[int] = ..., result: _Optional[str] = ..., outcome: _Optional[_Union[StepOutcome, str]] = ..., stuck: bool = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class StartRunRequest(_message.Message):
    __slots__ = ["request", "request_id", "run_id"]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    request: str
    request_id: str
    run_id: str
    def __init__(self, request_id: _Optional[str] = ..., run_id: _Optional[str] = ..., request: _Optional[str] = ...) -> None: ...

class StartRunResponse(_message.Message):
    __slots__ = ["next_step", "run"]
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    next_step: NextStep
    run: Run
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ..., next_step: _Optional[_Union[NextStep, _Mapping]] = ...) -> None: ...

class WatchRunRequest(_message.Message):
    __slots__ = ["after_sequence", "run_id"]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    after_sequence: int
    run_id: str
    def __init__(self, run_id: _Optional[str] = ..., after_sequence: _Optional[int] = ...) -> None: ...

class WatchRunResponse(_message.Message):
    __slots__ = ["event", "keepalive", "trimmed"]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    event: RunEvent
    keepalive: _sandbox_pb2.WatchKeepalive
    trimmed: _sandbox_pb2.HistoryTrimmed
    def __init__(self, event: _Optional[_Union[RunEvent, _Mapping]] = ..., trimmed: _Optional[_Union[_sandbox_pb2.HistoryTrimmed, _Mapping]] = ..., keepalive: _Optional[_Union[_sandbox_pb2.WatchKeepalive, _Mapping]] = ...) -> None: ...

class RunState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class RunOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class RunOnEnd(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class StepOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class RunMessageRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class RunEventType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
