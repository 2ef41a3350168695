from berth.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AddTraceRefRequest(_message.Message):
    __slots__ = ["request_id", "trace_id", "workspace_id"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    trace_id: str
    workspace_id: str
    def __init__(self, request_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., trace_id: _Optional[str] = ...) -> None: ...

class AddTraceRefResponse(_message.Message):
    __slots__ = ["previous_workspace_id", "workspace"]
    PREVIOUS_WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    previous_workspace_id: str
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ..., previous_workspace_id: _Optional[str] = ...) -> None: ...

class BrokenWorkspace(_message.Message):
    __slots__ = ["message", "path", "workspace_id"]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    message: str
    path: str
    workspace_id: str
    def __init__(self, workspace_id: _Optional[str] = ..., path: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class CleanupWorkspaceRequest(_message.Message):
    __slots__ = ["force", "grace", "request_id", "workspace_id"]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    force: bool
    grace: _duration_pb2.Duration
    request_id: str
    workspace_id: str
    def __init__(self, request_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., force: bool = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CleanupWorkspaceResponse(_message.Message):
    __slots__ = ["cleared_ref_count", "deleted", "workspace"]
    CLEARED_REF_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    cleared_ref_count: int
    deleted: bool
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ..., cleared_ref_count: _Optional[int] = ..., deleted: bool = ...) -> None: ...

class CreateWorkspaceRequest(_message.Message):
    __slots__ = ["request_id", "workspace_id"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    workspace_id: str
    def __init__(self, request_id: _Optional[str] = ..., workspace_id: _Optional[str] = ...) -> None: ...

class CreateWorkspaceResponse(_message.Message):
    __slots__ = ["created", "workspace"]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    created: bool
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ..., created: bool = ...) -> None: ...

class EnsureWorkspaceSandboxRequest(_message.Message):
    __slots__ = ["request_id", "spec", "workspace_id"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    spec: _sandbox_pb2.SandboxSpec
    workspace_id: str
    def __init__(self, request_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., spec: _Optional[_Union[_sandbox_pb2.SandboxSpec, _Mapping]] = ...) -> None: ...

class EnsureWorkspaceSandboxResponse(_message.Message):
    __slots__ = ["reused", "sandbox", "sandbox_unavailable_reason", "workspace"]
    REUSED_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_UNAVAILABLE_REASON_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    reused: bool
    sandbox: _sandbox_pb2.Sandbox
    sandbox_unavailable_reason: str
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ..., sandbox: _Optional[_Union[_sandbox_pb2.Sandbox, _Mapping]] = ..., sandbox_unavailable_reason: _Optional[str] = ..., reused: bool = ...) -> None: ...

class ExportWorkspaceRequest(_message.Message):
    __slots__ = ["workspace_id"]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    workspace_id: str
    def __init__(self, workspace_id: _Optional[str] = ...) -> None: ...

class ExportWorkspaceResponse(_message.Message):
    __slots__ = ["chunk"]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    chunk: bytes
    def __init__(self, chunk: _Optional[bytes] = ...) -> None: ...

class GetWorkspaceRequest(_message.Message):
    __slots__ = ["measure_size", "workspace_id"]
    MEASURE_SIZE_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    measure_size: bool
    workspace_id: str
    def __init__(self, workspace_id: _Optional[str] = ..., measure_size: bool = ...) -> None: ...

class GetWorkspaceResponse(_message.Message):
    __slots__ = ["workspace"]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ...) -> None: ...

class ImportWorkspaceHeader(_message.Message):
    __slots__ = ["replace", "request_id", "workspace_id"]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    replace: bool
    request_id: str
    workspace_id: str
    def __init__(self, request_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., replace: bool = ...) -> None: ...

class ImportWorkspaceRequest(_message.Message):
    __slots__ = ["chunk", "header"]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    chunk: bytes
    header: ImportWorkspaceHeader
    def __init__(self, header: _Optional[_Union[ImportWorkspaceHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class ImportWorkspaceResponse(_message.Message):
    __slots__ = ["entry_count", "size_bytes", "workspace"]
    ENTRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    entry_count: int
    size_bytes: int
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ..., entry_count: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ListWorkspacesRequest(_message.Message):
    __slots__ = ["page_size", "page_token"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListWorkspacesResponse(_message.Message):
    __slots__ = ["broken", "next_page_token", "workspaces"]
    BROKEN_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WORKSPACES_FIELD_NUMBER: _ClassVar[int]
    broken: _containers.RepeatedCompositeFieldContainer[BrokenWorkspace]
    next_page_token: str
    workspaces: _containers.RepeatedCompositeFieldContainer[Workspace]
    def __init__(self, workspaces: _Optional[_Iterable[_Union[Workspace, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., broken: _Optional[_Iterable[_Union[BrokenWorkspace, _Mapping]]] = ...) -> None: ...

class LookupTraceRequest(_message.Message):
    __slots__ = ["trace_id"]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    trace_id: str
    def __init__(self, trace_id: _Optional[str] = ...) -> None: ...

class LookupTraceResponse(_message.Message):
    __slots__ = ["workspace"]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ...) -> None: ...

class RemoveTraceRefRequest(_message.Message):
    __slots__ = ["request_id", "trace_id", "workspace_id"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    trace_id: str
    workspace_id: str
    def __init__(self, request_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., trace_id: _Optional[str] = ...) -> None: ...

class RemoveTraceRefResponse(_message.Message):
    __slots__ = ["workspace"]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ...) -> None: ...

class StopWorkspaceSandboxRequest(_message.Message):
    __slots__ = ["grace", "request_id", "workspace_id"]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    grace: _duration_pb2.Duration
    request_id: str
    workspace_id: str
    def __init__(self, request_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class StopWorkspaceSandboxResponse(_message.Message):
    __slots__ = ["workspace"]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: Workspace
    def __init__(self, workspace: _Optional[_Union[Workspace, _Mapping]] = ...) -> None: ...

class Workspace(_message.Message):
    __slots__ = ["create_time", "owner", "path", "ref_count", "sandbox_id", "size_bytes", "trace_refs", "update_time", "workspace_id"]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    REF_COUNT_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRACE_REFS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    create_time: _timestamp_pb2.Timestamp
    owner: str
    path: str
    ref_count: int
    sandbox_id: str
    size_bytes: int
    trace_refs: _containers.RepeatedScalarFieldContainer[str]
    update_time: _timestamp_pb2.Timestamp
    workspace_id: str
    def __init__(self, workspace_id: _Optional[str] = ..., path: _Optional[str] = ..., trace_refs: _Optional[_Iterable[str]] = ..., ref_count: _Optional[int] = ..., sandbox_id: _Optional[str] = ..., size_bytes: _Optional[int] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., owner: _Optional[str] = ...) -> None: ...
