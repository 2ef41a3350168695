from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
ERROR_REASON_ARCHIVE_REJECTED: ErrorReason
ERROR_REASON_CANCELED: ErrorReason
ERROR_REASON_DEADLINE_EXCEEDED: ErrorReason
ERROR_REASON_DIRECTORY_NOT_EMPTY: ErrorReason
ERROR_REASON_ENGINE_UNAVAILABLE: ErrorReason
ERROR_REASON_FILE_EXISTS: ErrorReason
ERROR_REASON_FILE_KIND: ErrorReason
ERROR_REASON_FILE_NOT_FOUND: ErrorReason
ERROR_REASON_FILE_PERMISSION: ErrorReason
ERROR_REASON_IMAGE_UNAVAILABLE: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason
ERROR_REASON_INVALID_ARGUMENT: ErrorReason
ERROR_REASON_MESSAGE_TOO_LARGE: ErrorReason
ERROR_REASON_NOT_ALLOWED: ErrorReason
ERROR_REASON_NO_SPACE: ErrorReason
ERROR_REASON_OFFSET_OUT_OF_RANGE: ErrorReason
ERROR_REASON_PROCESS_NOT_FOUND: ErrorReason
ERROR_REASON_PROCESS_STATE: ErrorReason
ERROR_REASON_REQUEST_ID_REUSED: ErrorReason
ERROR_REASON_RUN_NOT_FOUND: ErrorReason
ERROR_REASON_RUN_STATE: ErrorReason
ERROR_REASON_SANDBOX_DELETED: ErrorReason
ERROR_REASON_SANDBOX_EXISTS: ErrorReason
ERROR_REASON_SANDBOX_IN_USE: ErrorReason
ERROR_REASON_SANDBOX_LIMIT: ErrorReason
ERROR_REASON_SANDBOX_NOT_FOUND: ErrorReason
ERROR_REASON_SANDBOX_NOT_RUNNING: ErrorReason
ERROR_REASON_SANDBOX_REPLACED: ErrorReason
ERROR_REASON_SANDBOX_START_FAILED: ErrorReason
ERROR_REASON_SANDBOX_TERMINATED: ErrorReason
ERROR_REASON_SESSION_LOST: ErrorReason
ERROR_REASON_SESSION_NOT_FOUND: ErrorReason
ERROR_REASON_SESSION_START_FAILED: ErrorReason
ERROR_REASON_SHUTTING_DOWN: ErrorReason
ERROR_REASON_TOOL_NOT_FOUND: ErrorReason
ERROR_REASON_TOO_MANY_OPERATIONS: ErrorReason
ERROR_REASON_TRACE_NOT_FOUND: ErrorReason
ERROR_REASON_UNAUTHENTICATED: ErrorReason
ERROR_REASON_UNIMPLEMENTED: ErrorReason
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_UNSUPPORTED: ErrorReason
ERROR_REASON_WORKSPACE_BROKEN: ErrorReason
ERROR_REASON_WORKSPACE_IN_USE: ErrorReason
ERROR_REASON_WORKSPACE_NOT_FOUND: ErrorReason

class ErrorDetail(_message.Message):
    __slots__ = ["metadata", "reason", "retry_after"]
    class MetadataEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    METADATA_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    metadata: _containers.ScalarMap[str, str]
    reason: ErrorReason
    retry_after: _duration_pb2.Duration
    def __init__(self, reason: _Optional[_Union[ErrorReason, str]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., retry_after: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ["code", "detail", "message"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    detail: ErrorDetail
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., detail: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
