from berth.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
FILE_CHANGE_TYPE_CREATED: FileChangeType
FILE_CHANGE_TYPE_MODIFIED: FileChangeType
FILE_CHANGE_TYPE_REMOVED: FileChangeType
FILE_CHANGE_TYPE_UNSPECIFIED: FileChangeType
FILE_KIND_BLOCK_DEVICE: FileKind
FILE_KIND_CHARACTER_DEVICE: FileKind
FILE_KIND_DIRECTORY: FileKind
FILE_KIND_FIFO: FileKind
FILE_KIND_REGULAR: FileKind
FILE_KIND_SOCKET: FileKind
FILE_KIND_SYMLINK: FileKind
FILE_KIND_UNSPECIFIED: FileKind

class DirectoryEntry(_message.Message):
    __slots__ = ["file", "name", "raw_name"]
    FILE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RAW_NAME_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    name: str
    raw_name: bytes
    def __init__(self, name: _Optional[str] = ..., raw_name: _Optional[bytes] = ..., file: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class DownloadArchiveRequest(_message.Message):
    __slots__ = ["generation", "path", "raw_path", "sandbox_id", "user"]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    generation: int
    path: str
    raw_path: bytes
    sandbox_id: str
    user: str
    def __init__(self, sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., user: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class DownloadArchiveResponse(_message.Message):
    __slots__ = ["chunk"]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    chunk: bytes
    def __init__(self, chunk: _Optional[bytes] = ...) -> None: ...

class DownloadFileHeader(_message.Message):
    __slots__ = ["file", "offset"]
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    offset: int
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class DownloadFileRequest(_message.Message):
    __slots__ = ["generation", "offset", "path", "raw_path", "sandbox_id", "user"]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    generation: int
    offset: int
    path: str
    raw_path: bytes
    sandbox_id: str
    user: str
    def __init__(self, sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., offset: _Optional[int] = ..., user: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class DownloadFileResponse(_message.Message):
    __slots__ = ["chunk", "header"]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    chunk: bytes
    header: DownloadFileHeader
    def __init__(self, header: _Optional[_Union[DownloadFileHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class FileChange(_message.Message):
    __slots__ = ["file", "path", "raw_path", "time", "type"]
    FILE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    path: str
    raw_path: bytes
    time: _timestamp_pb2.Timestamp
    type: FileChangeType
    def __init__(self, type: _Optional[_Union[FileChangeType, str]] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., file: _Optional[_Union[FileInfo, _Mapping]] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class FileInfo(_message.Message):
    __slots__ = ["gid", "kind", "link_target", "mode", "modify_time", "raw_link_target", "size_bytes", "uid"]
    GID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LINK_TARGET_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MODIFY_TIME_FIELD_NUMBER: _ClassVar[int]
    RAW_LINK_TARGET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    gid: int
    kind: FileKind
    link_target: str
    mode: int
    modify_time: _timestamp_pb2.Timestamp
    raw_link_target: bytes
    size_bytes: int
    uid: int
    def __init__(self, kind: _Optional[_Union[FileKind, str]] = ..., size_bytes: _Optional[int] = ..., mode: _Optional[int] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., modify_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., link_target: _Optional[str] = ..., raw_link_target: _Optional[bytes] = ...) -> None: ...

class ListDirectoryRequest(_message.Message):
    __slots__ = ["generation", "page_size", "page_token", "path", "raw_path", "sandbox_id", "user"]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    generation: int
    page_size: int
    page_token: str
    path: str
    raw_path: bytes
    sandbox_id: str
    user: str
    def __init__(self, sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., user: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class ListDirectoryResponse(_message.Message):
    __slots__ = ["entries", "next_page_token"]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[DirectoryEntry]
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[DirectoryEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class MakeDirectoryRequest(_message.Message):
    __slots__ = ["create_parents", "generation", "mode", "path", "raw_path", "request_id", "sandbox_id", "user"]
    CREATE_PARENTS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    create_parents: bool
    generation: int
    mode: int
    path: str
    raw_path: bytes
    request_id: str
    sandbox_id: str
    user: str
    def __init__(self, request_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., mode: _Optional[int] = ..., create_parents: bool = ..., user: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class MakeDirectoryResponse(_message.Message):
    __slots__ = ["file"]
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class MoveFileRequest(_message.Message):
    __slots__ = ["create_parents", "generation", "overwrite", "raw_source_path", "raw_target_path", "request_id", "sandbox_id", "source_path", "target_path", "user"]
    CREATE_PARENTS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OVERWRITE_FIELD_NUMBER: _ClassVar[int]
    RAW_SOURCE_PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_TARGET_PATH_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PATH_FIELD_NUMBER: _ClassVar[int]
    TARGET_PATH_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    create_parents: bool
    generation: int
    overwrite: bool
    raw_source_path: bytes
    raw_target_path: bytes
    request_id: str
    sandbox_id: str
    source_path: str
    target_path: str
    user: str
    def __init__(self, request_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., source_path: _Optional[str] = ..., raw_source_path: _Optional[bytes] = ..., target_path: _Optional[str] = ..., raw_target_path: _Optional[bytes] = ..., overwrite: bool = ..., create_parents: bool = ..., user: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class MoveFileResponse(_message.Message):
    __slots__ = ["file"]
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class ReadFileRequest(_message.Message):
    __slots__ = ["generation", "limit", "offset", "path", "raw_path", "sandbox_id", "user"]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    generation: int
    limit: int
    offset: int
    path: str
    raw_path: bytes
    sandbox_id: str
    user: str
    def __init__(self, sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., offset: _Optional[int] = ..., limit: _Optional[int] = ..., user: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class ReadFileResponse(_message.Message):
    __slots__ = ["data", "end_of_file", "file"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_OF_FILE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    end_of_file: bool
    file: FileInfo
    def __init__(self, data: _Optional[bytes] = ..., file: _Optional[_Union[FileInfo, _Mapping]] = ..., end_of_file: bool = ...) -> None: ...

class RemoveFileRequest(_message.Message):
    __slots__ = ["allow_missing", "generation", "path", "raw_path", "recursive", "request_id", "sandbox_id", "user"]
    ALLOW_MISSING_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    allow_missing: bool
    generation: int
    path: str
    raw_path: bytes
    recursive: bool
    request_id: str
    sandbox_id: str
    user: str
    def __init__(self, request_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., recursive: bool = ..., allow_missing: bool = ..., user: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class RemoveFileResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class StatFileRequest(_message.Message):
    __slots__ = ["follow_symlink", "generation", "path", "raw_path", "sandbox_id", "user"]
    FOLLOW_SYMLINK_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    follow_symlink: bool
    generation: int
    path: str
    raw_path: bytes
    sandbox_id: str
    user: str
    def __init__(self, sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., follow_symlink: bool = ..., user: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class StatFileResponse(_message.Message):
    __slots__ = ["file", "path", "raw_path"]
    FILE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    path: str
    raw_path: bytes
    def __init__(self, path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., file: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class UploadArchiveHeader(_message.Message):
    __slots__ = ["create_parents", "generation", "path", "raw_path", "request_id", "sandbox_id", "user"]
    CREATE_PARENTS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    create_parents: bool
    generation: int
    path: str
    raw_path: bytes
    request_id: str
    sandbox_id: str
    user: str
    def __init__(self, request_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., create_parents: bool = ..., user: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class UploadArchiveRequest(_message.Message):
    __slots__ = ["chunk", "header"]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    chunk: bytes
    header: UploadArchiveHeader
    def __init__(self, header: _Optional[_Union[UploadArchiveHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class UploadArchiveResponse(_message.Message):
    __slots__ = ["entry_count", "size_bytes"]
    ENTRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    entry_count: int
    size_bytes: int
    def __init__(self, entry_count: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class UploadFileHeader(_message.Message):
    __slots__ = ["create_parents", "generation", "mode", "path", "raw_path", "request_id", "sandbox_id", "size_bytes", "user"]
    CREATE_PARENTS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    create_parents: bool
    generation: int
    mode: int
    path: str
    raw_path: bytes
    request_id: str
    sandbox_id: str
    size_bytes: int
    user: str
    def __init__(self, request_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., size_bytes: _Optional[int] = ..., mode: _Optional[int] = ..., create_parents: bool = ..., user: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class UploadFileRequest(_message.Message):
    __slots__ = ["chunk", "header"]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    chunk: bytes
    header: UploadFileHeader
    def __init__(self, header: _Optional[_Union[UploadFileHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class UploadFileResponse(_message.Message):
    __slots__ = ["file"]
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class WatchDirectoryRequest(_message.Message):
    __slots__ = ["generation", "interval", "path", "raw_path", "recursive", "sandbox_id", "user"]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    generation: int
    interval: _duration_pb2.Duration
    path: str
    raw_path: bytes
    recursive: bool
    sandbox_id: str
    user: str
    def __init__(self, sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., recursive: bool = ..., interval: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., user: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class WatchDirectoryResponse(_message.Message):
    __slots__ = ["change", "keepalive", "started"]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    change: FileChange
    keepalive: _sandbox_pb2.WatchKeepalive
    started: WatchDirectoryStarted
    def __init__(self, started: _Optional[_Union[WatchDirectoryStarted, _Mapping]] = ..., change: _Optional[_Union[FileChange, _Mapping]] = ..., keepalive: _Optional[_Union[_sandbox_pb2.WatchKeepalive, _Mapping]] = ...) -> None: ...

class WatchDirectoryStarted(_message.Message):
    __slots__ = ["entry_count"]
    ENTRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    entry_count: int
    def __init__(self, entry_count: _Optional[int] = ...) -> None: ...

class WriteFileRequest(_message.Message):
    __slots__ = ["append", "create_parents", "data", "generation", "mode", "path", "raw_path", "request_id", "sandbox_id", "user"]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    CREATE_PARENTS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    append: bool
    create_parents: bool
    data: bytes
    generation: int
    mode: int
    path: str
    raw_path: bytes
    request_id: str
    sandbox_id: str
    user: str
    def __init__(self, request_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., path: _Optional[str] = ..., raw_path: _Optional[bytes] = ..., data: _Optional[bytes] = ..., mode: _Optional[int] = ..., append: bool = ..., create_parents: bool = ..., user: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class WriteFileResponse(_message.Message):
    __slots__ = ["file"]
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class FileKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class FileChangeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
