from berth.v1 import error_pb2 as _error_pb2
from berth.v1 import process_pb2 as _process_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
SESSION_RESULT_STATUS_CREATED: SessionResultStatus
SESSION_RESULT_STATUS_DESTROYED: SessionResultStatus
SESSION_RESULT_STATUS_EXISTS: SessionResultStatus
SESSION_RESULT_STATUS_FAILED: SessionResultStatus
SESSION_RESULT_STATUS_NOT_FOUND: SessionResultStatus
SESSION_RESULT_STATUS_REFRESHED: SessionResultStatus
SESSION_RESULT_STATUS_REINITIALIZED: SessionResultStatus
SESSION_RESULT_STATUS_UNSPECIFIED: SessionResultStatus
SESSION_STATUS_ACTIVE: SessionStatus
SESSION_STATUS_DESTROYING: SessionStatus
SESSION_STATUS_INITIALIZING: SessionStatus
SESSION_STATUS_UNSPECIFIED: SessionStatus

class Attachment(_message.Message):
    __slots__ = ["content", "media_type", "name"]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    media_type: str
    name: str
    def __init__(self, media_type: _Optional[str] = ..., content: _Optional[bytes] = ..., name: _Optional[str] = ...) -> None: ...

class CreateSessionsRequest(_message.Message):
    __slots__ = ["request_id", "resources", "worker_id"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    resources: _containers.RepeatedCompositeFieldContainer[SessionResource]
    worker_id: str
    def __init__(self, request_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., resources: _Optional[_Iterable[_Union[SessionResource, _Mapping]]] = ...) -> None: ...

class CreateSessionsResponse(_message.Message):
    __slots__ = ["results"]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SessionResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SessionResult, _Mapping]]] = ...) -> None: ...

class DestroySessionsRequest(_message.Message):
    __slots__ = ["grace", "request_id", "resource_types", "worker_id"]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPES_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    grace: _duration_pb2.Duration
    request_id: str
    resource_types: _containers.RepeatedScalarFieldContainer[str]
    worker_id: str
    def __init__(self, request_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., resource_types: _Optional[_Iterable[str]] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class DestroySessionsResponse(_message.Message):
    __slots__ = ["results"]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SessionResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SessionResult, _Mapping]]] = ...) -> None: ...

class ExecuteToolBatchRequest(_message.Message):
    __slots__ = ["calls", "parallel", "request_id", "stop_on_error", "trace_id", "worker_id"]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STOP_ON_ERROR_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    parallel: bool
    request_id: str
    stop_on_error: bool
    trace_id: str
    worker_id: str
    def __init__(self, request_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ..., parallel: bool = ..., stop_on_error: bool = ..., trace_id: _Optional[str] = ...) -> None: ...

class ExecuteToolBatchResponse(_message.Message):
    __slots__ = ["results"]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ToolCallResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ToolCallResult, _Mapping]]] = ...) -> None: ...

class ExecuteToolRequest(_message.Message):
    __slots__ = ["params", "request_id", "timeout", "tool", "trace_id", "worker_id"]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    params: _struct_pb2.Struct
    request_id: str
    timeout: _duration_pb2.Duration
    tool: str
    trace_id: str
    worker_id: str
    def __init__(self, request_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., tool: _Optional[str] = ..., params: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., trace_id: _Optional[str] = ...) -> None: ...

class ExecuteToolResponse(_message.Message):
    __slots__ = ["attachments", "code", "data", "message", "meta"]
    ATTACHMENTS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    attachments: _containers.RepeatedCompositeFieldContainer[Attachment]
    code: int
    data: _struct_pb2.Value
    message: str
    meta: ToolMeta
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., data: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., attachments: _Optional[_Iterable[_Union[Attachment, _Mapping]]] = ..., meta: _Optional[_Union[ToolMeta, _Mapping]] = ...) -> None: ...

class ExecuteToolStreamRequest(_message.Message):
    __slots__ = ["params", "request_id", "timeout", "tool", "trace_id", "worker_id"]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    params: _struct_pb2.Struct
    request_id: str
    timeout: _duration_pb2.Duration
    tool: str
    trace_id: str
    worker_id: str
    def __init__(self, request_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., tool: _Optional[str] = ..., params: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., trace_id: _Optional[str] = ...) -> None: ...

class ExecuteToolStreamResponse(_message.Message):
    __slots__ = ["keepalive", "output", "response", "started"]
    KEEPALIVE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    keepalive: _process_pb2.Keepalive
    output: ToolOutput
    response: ExecuteToolResponse
    started: ToolStarted
    def __init__(self, started: _Optional[_Union[ToolStarted, _Mapping]] = ..., output: _Optional[_Union[ToolOutput, _Mapping]] = ..., response: _Optional[_Union[ExecuteToolResponse, _Mapping]] = ..., keepalive: _Optional[_Union[_process_pb2.Keepalive, _Mapping]] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ["page_size", "page_token", "resource_types", "worker_id"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPES_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    resource_types: _containers.RepeatedScalarFieldContainer[str]
    worker_id: str
    def __init__(self, worker_id: _Optional[str] = ..., resource_types: _Optional[_Iterable[str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ["next_page_token", "sessions"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    sessions: _containers.RepeatedCompositeFieldContainer[Session]
    def __init__(self, sessions: _Optional[_Iterable[_Union[Session, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListToolsRequest(_message.Message):
    __slots__ = ["page_size", "page_token", "resource_type"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    resource_type: str
    def __init__(self, resource_type: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListToolsResponse(_message.Message):
    __slots__ = ["next_page_token", "resource_types", "tools"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPES_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    resource_types: _containers.RepeatedCompositeFieldContainer[ResourceType]
    tools: _containers.RepeatedCompositeFieldContainer[Tool]
    def __init__(self, tools: _Optional[_Iterable[_Union[Tool, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., resource_types: _Optional[_Iterable[_Union[ResourceType, _Mapping]]] = ...) -> None: ...

class RefreshSessionsRequest(_message.Message):
    __slots__ = ["request_id", "resource_types", "worker_id"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPES_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    resource_types: _containers.RepeatedScalarFieldContainer[str]
    worker_id: str
    def __init__(self, request_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., resource_types: _Optional[_Iterable[str]] = ...) -> None: ...

class RefreshSessionsResponse(_message.Message):
    __slots__ = ["results"]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SessionResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SessionResult, _Mapping]]] = ...) -> None: ...

class ReinitializeSessionRequest(_message.Message):
    __slots__ = ["config", "grace", "request_id", "resource_type", "worker_id"]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    config: _struct_pb2.Struct
    grace: _duration_pb2.Duration
    request_id: str
    resource_type: str
    worker_id: str
    def __init__(self, request_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., resource_type: _Optional[str] = ..., config: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ReinitializeSessionResponse(_message.Message):
    __slots__ = ["config_applied", "failure", "new_session_id", "old_session_id", "resource_type", "session", "status"]
    CONFIG_APPLIED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    NEW_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    OLD_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    config_applied: _struct_pb2.Struct
    failure: _error_pb2.Failure
    new_session_id: str
    old_session_id: str
    resource_type: str
    session: Session
    status: SessionResultStatus
    def __init__(self, status: _Optional[_Union[SessionResultStatus, str]] = ..., resource_type: _Optional[str] = ..., old_session_id: _Optional[str] = ..., new_session_id: _Optional[str] = ..., config_applied: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., session: _Optional[_Union[Session, _Mapping]] = ..., failure: _Optional[_Union[_error_pb2.Failure, _Mapping]] = ...) -> None: ...

class ResourceType(_message.Message):
    __slots__ = ["config_schema", "description", "name"]
    CONFIG_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    config_schema: _struct_pb2.Struct
    description: str
    name: str
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., config_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ["active_calls", "config", "create_time", "custom_name", "expire_time", "last_used_time", "name", "owner", "resource_type", "sandbox_id", "session_id", "status", "ttl", "worker_id", "workspace_id"]
    ACTIVE_CALLS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_NAME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_TIME_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    active_calls: int
    config: _struct_pb2.Struct
    create_time: _timestamp_pb2.Timestamp
    custom_name: str
    expire_time: _timestamp_pb2.Timestamp
    last_used_time: _timestamp_pb2.Timestamp
    name: str
    owner: str
    resource_type: str
    sandbox_id: str
    session_id: str
    status: SessionStatus
    ttl: _duration_pb2.Duration
    worker_id: str
    workspace_id: str
    def __init__(self, session_id: _Optional[str] = ..., name: _Optional[str] = ..., worker_id: _Optional[str] = ..., resource_type: _Optional[str] = ..., status: _Optional[_Union[SessionStatus, str]] = ..., config: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., custom_name: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., ttl: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., last_used_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., active_calls: _Optional[int] = ..., owner: _Optional[str] = ...) -> None: ...

class SessionResource(_message.Message):
    __slots__ = ["config", "custom_name", "generation", "resource_type", "sandbox_id", "ttl", "workspace_id"]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    config: _struct_pb2.Struct
    custom_name: str
    generation: int
    resource_type: str
    sandbox_id: str
    ttl: _duration_pb2.Duration
    workspace_id: str
    def __init__(self, resource_type: _Optional[str] = ..., config: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., custom_name: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., generation: _Optional[int] = ..., workspace_id: _Optional[str] = ..., ttl: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SessionResult(_message.Message):
    __slots__ = ["failure", "resource_type", "session", "status"]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    failure: _error_pb2.Failure
    resource_type: str
    session: Session
    status: SessionResultStatus
    def __init__(self, resource_type: _Optional[str] = ..., status: _Optional[_Union[SessionResultStatus, str]] = ..., session: _Optional[_Union[Session, _Mapping]] = ..., failure: _Optional[_Union[_error_pb2.Failure, _Mapping]] = ...) -> None: ...

class Tool(_message.Message):
    __slots__ = ["description", "name", "params_schema", "resource_type", "short_name"]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARAMS_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    SHORT_NAME_FIELD_NUMBER: _ClassVar[int]
    description: str
    name: str
    params_schema: _struct_pb2.Struct
    resource_type: str
    short_name: str
    def __init__(self, name: _Optional[str] = ..., short_name: _Optional[str] = ..., resource_type: _Optional[str] = ..., description: _Optional[str] = ..., params_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ["params", "timeout", "tool", "trace_id"]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    params: _struct_pb2.Struct
    timeout: _duration_pb2.Duration
    tool: str
    trace_id: str
    def __init__(self, tool: _Optional[str] = ..., params: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., trace_id: _Optional[str] = ...) -> None: ...

class ToolCallResult(_message.Message):
    __slots__ = ["failure", "response", "skipped"]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    failure: _error_pb2.Failure
    response: ExecuteToolResponse
    skipped: ToolCallSkipped
    def __init__(self, response: _Optional[_Union[ExecuteToolResponse, _Mapping]] = ..., failure: _Optional[_Union[_error_pb2.Failure, _Mapping]] = ..., skipped: _Optional[_Union[ToolCallSkipped, _Mapping]] = ...) -> None: ...

class ToolCallSkipped(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ToolMeta(_message.Message):
    __slots__ = ["execution_time_ms", "full_name", "resource_type", "session_id", "temporary_session", "tool", "trace_id"]
    EXECUTION_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    FULL_NAME_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TEMPORARY_SESSION_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    execution_time_ms: int
    full_name: str
    resource_type: str
    session_id: str
    temporary_session: bool
    tool: str
    trace_id: str
    def __init__(self, tool: _Optional[str] = ..., full_name: _Optional[str] = ..., resource_type: _Optional[str] = ..., session_id: _Optional[str] = ..., temporary_session: bool = ..., trace_id: _Optional[str] = ..., execution_time_ms: _Optional[int] = ...) -> None: ...

class ToolOutput(_message.Message):
    __slots__ = ["data", "stream"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    stream: _process_pb2.OutputStream
    def __init__(self, stream: _Optional[_Union[_process_pb2.OutputStream, str]] = ..., data: _Optional[bytes] = ...) -> None: ...

class ToolStarted(_message.Message):
    __slots__ = ["meta"]
    META_FIELD_NUMBER: _ClassVar[int]
    meta: ToolMeta
    def __init__(self, meta: _Optional[_Union[ToolMeta, _Mapping]] = ...) -> None: ...

class SessionStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class SessionResultStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
