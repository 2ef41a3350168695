from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
ISOLATION_LEVEL_CONTAINER: IsolationLevel
ISOLATION_LEVEL_NAMESPACE: IsolationLevel
ISOLATION_LEVEL_UNSPECIFIED: IsolationLevel
ISOLATION_LEVEL_USER_KERNEL: IsolationLevel
ISOLATION_LEVEL_VIRTUAL_MACHINE: IsolationLevel
NETWORK_MODE_EGRESS: NetworkMode
NETWORK_MODE_NONE: NetworkMode
NETWORK_MODE_UNSPECIFIED: NetworkMode
SANDBOX_EVENT_TYPE_CREATING: SandboxEventType
SANDBOX_EVENT_TYPE_DELETING: SandboxEventType
SANDBOX_EVENT_TYPE_IMAGE_PULL: SandboxEventType
SANDBOX_EVENT_TYPE_PAUSED: SandboxEventType
SANDBOX_EVENT_TYPE_RESUMED: SandboxEventType
SANDBOX_EVENT_TYPE_RUNNING: SandboxEventType
SANDBOX_EVENT_TYPE_TERMINATED: SandboxEventType
SANDBOX_EVENT_TYPE_UNSPECIFIED: SandboxEventType
SANDBOX_EVENT_TYPE_UPDATED: SandboxEventType
SANDBOX_STATE_CREATING: SandboxState
SANDBOX_STATE_DELETING: SandboxState
SANDBOX_STATE_PAUSED: SandboxState
SANDBOX_STATE_RUNNING: SandboxState
SANDBOX_STATE_TERMINATED: SandboxState
SANDBOX_STATE_UNSPECIFIED: SandboxState
TERMINATION_CAUSE_CREATE_FAILED: TerminationCause
TERMINATION_CAUSE_DELETED: TerminationCause
TERMINATION_CAUSE_ENGINE_LOST: TerminationCause
TERMINATION_CAUSE_EXITED: TerminationCause
TERMINATION_CAUSE_IDLE_TIMEOUT: TerminationCause
TERMINATION_CAUSE_MAX_LIFETIME: TerminationCause
TERMINATION_CAUSE_OUT_OF_MEMORY: TerminationCause
TERMINATION_CAUSE_REMOVED_EXTERNALLY: TerminationCause
TERMINATION_CAUSE_SERVER_SHUTDOWN: TerminationCause
TERMINATION_CAUSE_UNSPECIFIED: TerminationCause

class CreateSandboxRequest(_message.Message):
    __slots__ = ["request_id", "sandbox_id", "spec"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    sandbox_id: str
    spec: SandboxSpec
    def __init__(self, request_id: _Optional[str] = ..., spec: _Optional[_Union[SandboxSpec, _Mapping]] = ..., sandbox_id: _Optional[str] = ...) -> None: ...

class CreateSandboxResponse(_message.Message):
    __slots__ = ["sandbox"]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    sandbox: Sandbox
    def __init__(self, sandbox: _Optional[_Union[Sandbox, _Mapping]] = ...) -> None: ...

class DeleteSandboxRequest(_message.Message):
    __slots__ = ["generation", "grace", "request_id", "sandbox_id"]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    generation: int
    grace: _duration_pb2.Duration
    request_id: str
    sandbox_id: str
    def __init__(self, request_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., generation: _Optional[int] = ...) -> None: ...

class DeleteSandboxResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class EngineInfo(_message.Message):
    __slots__ = ["available", "capabilities", "isolation", "name", "version"]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    available: bool
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    isolation: IsolationLevel
    name: str
    version: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., isolation: _Optional[_Union[IsolationLevel, str]] = ..., capabilities: _Optional[_Iterable[str]] = ..., available: bool = ...) -> None: ...

class GetSandboxRequest(_message.Message):
    __slots__ = ["sandbox_id"]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class GetSandboxResponse(_message.Message):
    __slots__ = ["sandbox"]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    sandbox: Sandbox
    def __init__(self, sandbox: _Optional[_Union[Sandbox, _Mapping]] = ...) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GetStatsResponse(_message.Message):
    __slots__ = ["active_operations", "cleanup_interval", "engine", "idle_timeout", "is_shutting_down", "max_sandboxes", "sandboxes", "total_sandboxes", "warm_pools"]
    ACTIVE_OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    CLEANUP_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    IS_SHUTTING_DOWN_FIELD_NUMBER: _ClassVar[int]
    MAX_SANDBOXES_FIELD_NUMBER: _ClassVar[int]
    SANDBOXES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SANDBOXES_FIELD_NUMBER: _ClassVar[int]
    WARM_POOLS_FIELD_NUMBER: _ClassVar[int]
    active_operations: int
    cleanup_interval: _duration_pb2.Duration
    engine: EngineInfo
    idle_timeout: _duration_pb2.Duration
    is_shutting_down: bool
    max_sandboxes: int
    sandboxes: _containers.RepeatedCompositeFieldContainer[SandboxUsage]
    total_sandboxes: int
    warm_pools: _containers.RepeatedCompositeFieldContainer[WarmPoolStats]
    def __init__(self, total_sandboxes: _Optional[int] = ..., active_operations: _Optional[int] = ..., max_sandboxes: _Optional[int] = ..., idle_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., cleanup_interval: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., is_shutting_down: bool = ..., sandboxes: _Optional[_Iterable[_Union[SandboxUsage, _Mapping]]] = ..., warm_pools: _Optional[_Iterable[_Union[WarmPoolStats, _Mapping]]] = ..., engine: _Optional[_Union[EngineInfo, _Mapping]] = ...) -> None: ...

class HistoryTrimmed(_message.Message):
    __slots__ = ["from_sequence", "to_sequence"]
    FROM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TO_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    from_sequence: int
    to_sequence: int
    def __init__(self, from_sequence: _Optional[int] = ..., to_sequence: _Optional[int] = ...) -> None: ...

class ImagePull(_message.Message):
    __slots__ = ["current_bytes", "image", "layers_done", "layers_total", "total_bytes"]
    CURRENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    LAYERS_DONE_FIELD_NUMBER: _ClassVar[int]
    LAYERS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    current_bytes: int
    image: str
    layers_done: int
    layers_total: int
    total_bytes: int
    def __init__(self, image: _Optional[str] = ..., current_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ..., layers_done: _Optional[int] = ..., layers_total: _Optional[int] = ...) -> None: ...

class KeepAliveSandboxRequest(_message.Message):
    __slots__ = ["generation", "request_id", "sandbox_id"]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    generation: int
    request_id: str
    sandbox_id: str
    def __init__(self, request_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class KeepAliveSandboxResponse(_message.Message):
    __slots__ = ["sandbox"]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    sandbox: Sandbox
    def __init__(self, sandbox: _Optional[_Union[Sandbox, _Mapping]] = ...) -> None: ...

class ListSandboxesRequest(_message.Message):
    __slots__ = ["label_selector", "page_size", "page_token", "show_terminated", "states"]
    class LabelSelectorEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SHOW_TERMINATED_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    label_selector: _containers.ScalarMap[str, str]
    page_size: int
    page_token: str
    show_terminated: bool
    states: _containers.RepeatedScalarFieldContainer[SandboxState]
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., label_selector: _Optional[_Mapping[str, str]] = ..., states: _Optional[_Iterable[_Union[SandboxState, str]]] = ..., show_terminated: bool = ...) -> None: ...

class ListSandboxesResponse(_message.Message):
    __slots__ = ["next_page_token", "sandboxes"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SANDBOXES_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    sandboxes: _containers.RepeatedCompositeFieldContainer[Sandbox]
    def __init__(self, sandboxes: _Optional[_Iterable[_Union[Sandbox, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Mount(_message.Message):
    __slots__ = ["host_path", "read_only", "target", "workspace_id"]
    HOST_PATH_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    host_path: str
    read_only: bool
    target: str
    workspace_id: str
    def __init__(self, workspace_id: _Optional[str] = ..., host_path: _Optional[str] = ..., target: _Optional[str] = ..., read_only: bool = ...) -> None: ...

class Network(_message.Message):
    __slots__ = ["mode"]
    MODE_FIELD_NUMBER: _ClassVar[int]
    mode: NetworkMode
    def __init__(self, mode: _Optional[_Union[NetworkMode, str]] = ...) -> None: ...

class PauseSandboxRequest(_message.Message):
    __slots__ = ["generation", "request_id", "sandbox_id"]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    generation: int
    request_id: str
    sandbox_id: str
    def __init__(self, request_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class PauseSandboxResponse(_message.Message):
    __slots__ = ["sandbox"]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    sandbox: Sandbox
    def __init__(self, sandbox: _Optional[_Union[Sandbox, _Mapping]] = ...) -> None: ...

class Resources(_message.Message):
    __slots__ = ["cpu_millis", "disk_bytes", "memory_bytes", "pids_limit"]
    CPU_MILLIS_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PIDS_LIMIT_FIELD_NUMBER: _ClassVar[int]
    cpu_millis: int
    disk_bytes: int
    memory_bytes: int
    pids_limit: int
    def __init__(self, memory_bytes: _Optional[int] = ..., cpu_millis: _Optional[int] = ..., pids_limit: _Optional[int] = ..., disk_bytes: _Optional[int] = ...) -> None: ...

class ResumeSandboxRequest(_message.Message):
    __slots__ = ["generation", "request_id", "sandbox_id"]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    generation: int
    request_id: str
    sandbox_id: str
    def __init__(self, request_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class ResumeSandboxResponse(_message.Message):
    __slots__ = ["sandbox"]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    sandbox: Sandbox
    def __init__(self, sandbox: _Optional[_Union[Sandbox, _Mapping]] = ...) -> None: ...

class Sandbox(_message.Message):
    __slots__ = ["active_operations", "create_time", "engine", "expire_time", "generation", "isolation", "last_used_time", "owner", "sandbox_id", "spec", "state", "termination"]
    ACTIVE_OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_TIME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TERMINATION_FIELD_NUMBER: _ClassVar[int]
    active_operations: int
    create_time: _timestamp_pb2.Timestamp
    engine: str
    expire_time: _timestamp_pb2.Timestamp
    generation: int
    isolation: IsolationLevel
    last_used_time: _timestamp_pb2.Timestamp
    owner: str
    sandbox_id: str
    spec: SandboxSpec
    state: SandboxState
    termination: Termination
    def __init__(self, sandbox_id: _Optional[str] = ..., spec: _Optional[_Union[SandboxSpec, _Mapping]] = ..., state: _Optional[_Union[SandboxState, str]] = ..., generation: _Optional[int] = ..., engine: _Optional[str] = ..., isolation: _Optional[_Union[IsolationLevel, str]] = ..., owner: _Optional[str] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., last_used_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., active_operations: _Optional[int] = ..., termination: _Optional[_Union[Termination, _Mapping]] = ...) -> None: ...

class SandboxEvent(_message.Message):
    __slots__ = ["generation", "image_pull", "sandbox_id", "sequence", "termination", "time", "type"]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    IMAGE_PULL_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TERMINATION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    generation: int
    image_pull: ImagePull
    sandbox_id: str
    sequence: int
    termination: Termination
    time: _timestamp_pb2.Timestamp
    type: SandboxEventType
    def __init__(self, sequence: _Optional[int] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., sandbox_id: _Optional[str] = ..., generation: _Optional[int] = ..., type: _Optional[_Union[SandboxEventType, str]] = ..., termination: _Optional[_Union[Termination, _Mapping]] = ..., image_pull: _Optional[_Union[ImagePull, _Mapping]] = ...) -> None: ...

class SandboxSpec(_message.Message):
    __slots__ = ["command_timeout", "env", "idle_timeout", "image", "labels", "max_lifetime", "mounts", "network", "resources", "runtime", "user", "working_dir"]
    class EnvEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMAND_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    MAX_LIFETIME_FIELD_NUMBER: _ClassVar[int]
    MOUNTS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIR_FIELD_NUMBER: _ClassVar[int]
    command_timeout: _duration_pb2.Duration
    env: _containers.ScalarMap[str, str]
    idle_timeout: _duration_pb2.Duration
    image: str
    labels: _containers.ScalarMap[str, str]
    max_lifetime: _duration_pb2.Duration
    mounts: _containers.RepeatedCompositeFieldContainer[Mount]
    network: Network
    resources: Resources
    runtime: str
    user: str
    working_dir: str
    def __init__(self, image: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., working_dir: _Optional[str] = ..., user: _Optional[str] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., network: _Optional[_Union[Network, _Mapping]] = ..., mounts: _Optional[_Iterable[_Union[Mount, _Mapping]]] = ..., labels: _Optional[_Mapping[str, str]] = ..., idle_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_lifetime: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., command_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., runtime: _Optional[str] = ...) -> None: ...

class SandboxUsage(_message.Message):
    __slots__ = ["is_active", "last_used", "sandbox_id"]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    is_active: bool
    last_used: _timestamp_pb2.Timestamp
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ..., last_used: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., is_active: bool = ...) -> None: ...

class Termination(_message.Message):
    __slots__ = ["cause", "message", "time"]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    cause: TerminationCause
    message: str
    time: _timestamp_pb2.Timestamp
    def __init__(self, cause: _Optional[_Union[TerminationCause, str]] = ..., message: _Optional[str] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class UpdateSandboxRequest(_message.Message):
    __slots__ = ["generation", "idle_timeout", "labels", "max_lifetime", "request_id", "sandbox_id", "update_mask"]
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    MAX_LIFETIME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    generation: int
    idle_timeout: _duration_pb2.Duration
    labels: _containers.ScalarMap[str, str]
    max_lifetime: _duration_pb2.Duration
    request_id: str
    sandbox_id: str
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, request_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., idle_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_lifetime: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., generation: _Optional[int] = ...) -> None: ...

class UpdateSandboxResponse(_message.Message):
    __slots__ = ["sandbox"]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    sandbox: Sandbox
    def __init__(self, sandbox: _Optional[_Union[Sandbox, _Mapping]] = ...) -> None: ...

class WarmPoolStats(_message.Message):
    __slots__ = ["image", "ready", "target"]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    image: str
    ready: int
    target: int
    def __init__(self, image: _Optional[str] = ..., target: _Optional[int] = ..., ready: _Optional[int] = ...) -> None: ...

class WatchEventsRequest(_message.Message):
    __slots__ = ["after_sequence", "sandbox_id"]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    after_sequence: int
    sandbox_id: str
    def __init__(self, after_sequence: _Optional[int] = ..., sandbox_id: _Optional[str] = ...) -> None: ...

class WatchEventsResponse(_message.Message):
    __slots__ = ["event", "keepalive", "trimmed"]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    event: SandboxEvent
    keepalive: WatchKeepalive
    trimmed: HistoryTrimmed
    def __init__(self, event: _Optional[_Union[SandboxEvent, _Mapping]] = ..., trimmed: _Optional[_Union[HistoryTrimmed, _Mapping]] = ..., keepalive: _Optional[_Union[WatchKeepalive, _Mapping]] = ...) -> None: ...

class WatchKeepalive(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class SandboxState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class TerminationCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class NetworkMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class IsolationLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class SandboxEventType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
