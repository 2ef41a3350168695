"""What calls raise: one class per gRPC code, and below it one class per reason of `berth.v1.ErrorReason`.

Catch as wide as you need: `SandboxNotFoundError` is a `NotFoundError` is a `BerthError`.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Union, cast

import grpc

from berth.v1 import error_pb2

Metadatum = tuple[str, Union[str, bytes]]

_NOTHING: Mapping[str, str] = MappingProxyType({})


class BerthError(Exception):
    """A call to the service failed.

    A command that fails is not an error: its result says how it ended.
    """

    #: The gRPC code's name, such as "NOT_FOUND".
    code: str
    #: What happened and what to do, for people.
    message: str
    #: Name of the ErrorReason, such as "SANDBOX_NOT_FOUND". Empty if the service gave none, for example because it was
    #: not reached. For a reason that this client does not know: "UNKNOWN_" and its number.
    reason: str
    #: Facts for programs, such as "limit" or "sandbox_id".
    metadata: Mapping[str, str]
    #: Seconds after which a retry makes sense. None: unknown.
    retry_after: float | None
    #: Whether the service refused a token that has been replaced since in its file, so that a retry may succeed.
    token_replaced: bool = False

    def __init__(
        self,
        message: str,
        *,
        code: str = "UNKNOWN",
        reason: str = "",
        metadata: Mapping[str, str] = _NOTHING,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.metadata = metadata
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        # By its fields, whatever arguments a subclass takes. The view in `metadata` cannot be pickled.
        return _unpickled, (type(self), self.args, {**self.__dict__, "metadata": dict(self.metadata)})


def _unpickled(kind: type[BerthError], args: tuple[object, ...], fields: dict[str, object]) -> BerthError:
    made = kind.__new__(kind)
    made.args = args
    made.__dict__.update(fields, metadata=MappingProxyType(cast("dict[str, str]", fields["metadata"])))
    return made


class InvalidArgumentError(BerthError):
    """A parameter is missing, malformed or out of range. `metadata["field"]` names it."""


class NotFoundError(BerthError):
    """Something that the call names does not exist, or belongs to another tenant."""


class AlreadyExistsError(BerthError):
    """Something already exists."""


class ResourceExhaustedError(BerthError):
    """A limit is reached."""


class FailedPreconditionError(BerthError):
    """The current state does not allow the call."""


class PermissionDeniedError(BerthError):
    """The call is not allowed."""


class UnauthenticatedError(BerthError):
    """The call had no token, or one that the service does not know."""


class AbortedError(BerthError):
    """What the call worked on went away during the call."""


class UnavailableError(BerthError):
    """The service, or its engine, cannot be reached at the moment."""


class DeadlineExceededError(BerthError):
    """The call exceeded its deadline."""


class CanceledError(BerthError):
    """The call was canceled."""


class UnimplementedError(BerthError):
    """The service does not have the method: it is older than this client."""


class OutOfRangeError(BerthError):
    """A position is beyond the end."""


class InternalError(BerthError):
    """A bug in the service. The message contains an id that is also in the service's log."""


class SandboxNotFoundError(NotFoundError):
    """There is no such sandbox, or it belongs to another tenant."""


class ProcessNotFoundError(NotFoundError):
    """There is no such process, or its record has expired (24 hours)."""


class FileNotFoundError(NotFoundError, builtins.FileNotFoundError):
    """There is no file or directory at the path. Also a builtin FileNotFoundError."""


class WorkspaceNotFoundError(NotFoundError):
    """There is no such workspace."""


class SessionNotFoundError(NotFoundError):
    """There is no such session."""


class RunNotFoundError(NotFoundError):
    """There is no such run."""


class ToolNotFoundError(NotFoundError):
    """There is no such tool."""


class SandboxExistsError(AlreadyExistsError):
    """A live sandbox has this id."""


class RequestIdReusedError(AlreadyExistsError):
    """The request id was used before with other parameters."""


class FileExistsError(AlreadyExistsError, builtins.FileExistsError):
    """A file or directory is in the way. Also a builtin FileExistsError."""


class SandboxLimitError(ResourceExhaustedError):
    """The server has reached its limit of sandboxes."""


class TenantQuotaError(ResourceExhaustedError):
    """The tenant has reached one of its quotas. "quota" in the metadata names it."""


class TooManyOperationsError(ResourceExhaustedError):
    """Too many concurrent calls, streams, readers or processes."""


class MessageTooLargeError(ResourceExhaustedError):
    """A message exceeds the server's size limit."""


class NoSpaceError(ResourceExhaustedError):
    """There is no space left, in the sandbox or on the server."""


class ImageUnavailableError(FailedPreconditionError):
    """The image does not exist, cannot be pulled or cannot be started."""


class SandboxStartFailedError(FailedPreconditionError):
    """The container started but could not be made ready."""


class SandboxNotRunningError(FailedPreconditionError):
    """The sandbox is not in a state that allows the call."""


class SandboxReplacedError(FailedPreconditionError):
    """The container behind the id was replaced since the caller read its generation."""


class UnsupportedError(FailedPreconditionError):
    """The engine in use does not support this."""


class ProcessStateError(FailedPreconditionError):
    """The process has ended, has no terminal, or its stdin is closed."""


class FileKindError(FailedPreconditionError):
    """The path is not the kind of file that the call needs."""


class WorkspaceInUseError(FailedPreconditionError):
    """Traces still refer to the workspace."""


class RunStateError(FailedPreconditionError):
    """The run is not in a state that allows the call."""


class NotAllowedError(PermissionDeniedError):
    """The operator does not allow it, for example a host path or a runtime."""


class TokenScopeError(PermissionDeniedError):
    """The token's scope does not allow the call, or not in this tenant."""


class SecretNotFoundError(NotFoundError):
    """There is no secret of that name, or the tenant may not use it."""


class WorkspaceExistsError(AlreadyExistsError):
    """There is a workspace with this id."""


class FilePermissionError(PermissionDeniedError, builtins.PermissionError):
    """The sandbox's user may not access the file. Also a builtin PermissionError."""


class SandboxDeletedError(AbortedError):
    """The sandbox was deleted during the call."""


class SandboxTerminatedError(AbortedError):
    """The sandbox ended by itself during the call."""


class EngineUnavailableError(UnavailableError):
    """The engine does not answer. Retry after retry_after."""


class ShuttingDownError(UnavailableError):
    """The server is shutting down."""


class OffsetOutOfRangeError(OutOfRangeError):
    """An offset is beyond the end."""


class ArchiveRejectedError(InvalidArgumentError):
    """The archive is not a tar, or contains a refused entry. "entry" in the metadata names it."""


class DirectoryNotEmptyError(FailedPreconditionError):
    """The directory is not empty."""


class TraceNotFoundError(NotFoundError):
    """The trace belongs to no workspace."""


class WorkspaceBrokenError(FailedPreconditionError):
    """The workspace's directory is missing, is not the one that Berth created, or contains something that the server
    may not read or delete.
    """


class SessionStartFailedError(FailedPreconditionError):
    """The session could not be started, and does not exist."""


class StdinLostError(AbortedError):
    """The service was restarted while the command ran, which cut off its stdin."""


class SessionLostError(AbortedError):
    """The session ended during the call: it was destroyed, or its backend died. The next call needs a new one."""


class SandboxInUseError(FailedPreconditionError):
    """Another active run has the sandbox."""


class AnswerDroppedError(FailedPreconditionError):
    """The call was carried out, but its answer was dropped: the server keeps a limited number of bytes of answers.

    Check what the call changed before you repeat it. If its clients left too many answers unread, repeating it with the
    same request id is safe and gets the answer; the message says so.
    """


class ConnectionLostError(UnavailableError):
    """The connection broke while a command's output arrived, and could not be restored in time.

    The output so far is not lost. `sandbox.attach(error.process_id, stdout_offset=error.stdout_received,
    stderr_offset=error.stderr_received, recoveries=error.recoveries)` continues from there, for 24 hours.
    """

    #: The command's process. Empty if the connection broke before the service had named it.
    process_id: str
    #: Bytes of stdout that were received: the offset to continue from.
    stdout_received: int
    #: Bytes of stderr that were received: the offset to continue from.
    stderr_received: int
    #: How many services had recovered the command by then. A service that was killed continues before the offsets.
    recoveries: int | None

    def __init__(
        self,
        message: str,
        *,
        process_id: str = "",
        stdout_received: int = 0,
        stderr_received: int = 0,
        recoveries: int | None = None,
    ) -> None:
        super().__init__(message, code="UNAVAILABLE")
        self.process_id = process_id
        self.stdout_received = stdout_received
        self.stderr_received = stderr_received
        self.recoveries = recoveries


_BY_REASON: Mapping[str, type[BerthError]] = {
    "INVALID_ARGUMENT": InvalidArgumentError,
    "SANDBOX_NOT_FOUND": SandboxNotFoundError,
    "PROCESS_NOT_FOUND": ProcessNotFoundError,
    "FILE_NOT_FOUND": FileNotFoundError,
    "WORKSPACE_NOT_FOUND": WorkspaceNotFoundError,
    "SESSION_NOT_FOUND": SessionNotFoundError,
    "RUN_NOT_FOUND": RunNotFoundError,
    "TOOL_NOT_FOUND": ToolNotFoundError,
    "SANDBOX_EXISTS": SandboxExistsError,
    "REQUEST_ID_REUSED": RequestIdReusedError,
    "FILE_EXISTS": FileExistsError,
    "SANDBOX_LIMIT": SandboxLimitError,
    "TOO_MANY_OPERATIONS": TooManyOperationsError,
    "MESSAGE_TOO_LARGE": MessageTooLargeError,
    "NO_SPACE": NoSpaceError,
    "IMAGE_UNAVAILABLE": ImageUnavailableError,
    "SANDBOX_START_FAILED": SandboxStartFailedError,
    "SANDBOX_NOT_RUNNING": SandboxNotRunningError,
    "SANDBOX_REPLACED": SandboxReplacedError,
    "UNSUPPORTED": UnsupportedError,
    "PROCESS_STATE": ProcessStateError,
    "FILE_KIND": FileKindError,
    "WORKSPACE_IN_USE": WorkspaceInUseError,
    "RUN_STATE": RunStateError,
    "NOT_ALLOWED": NotAllowedError,
    "FILE_PERMISSION": FilePermissionError,
    "UNAUTHENTICATED": UnauthenticatedError,
    "SANDBOX_DELETED": SandboxDeletedError,
    "SANDBOX_TERMINATED": SandboxTerminatedError,
    "ENGINE_UNAVAILABLE": EngineUnavailableError,
    "SHUTTING_DOWN": ShuttingDownError,
    "DEADLINE_EXCEEDED": DeadlineExceededError,
    "CANCELED": CanceledError,
    "UNIMPLEMENTED": UnimplementedError,
    "OFFSET_OUT_OF_RANGE": OffsetOutOfRangeError,
    "INTERNAL": InternalError,
    "ARCHIVE_REJECTED": ArchiveRejectedError,
    "DIRECTORY_NOT_EMPTY": DirectoryNotEmptyError,
    "TRACE_NOT_FOUND": TraceNotFoundError,
    "WORKSPACE_BROKEN": WorkspaceBrokenError,
    "SESSION_START_FAILED": SessionStartFailedError,
    "SESSION_LOST": SessionLostError,
    "SANDBOX_IN_USE": SandboxInUseError,
    "ANSWER_DROPPED": AnswerDroppedError,
    "TOKEN_SCOPE": TokenScopeError,
    "TENANT_QUOTA": TenantQuotaError,
    "SECRET_NOT_FOUND": SecretNotFoundError,
    "WORKSPACE_EXISTS": WorkspaceExistsError,
    "STDIN_LOST": StdinLostError,
}

_BY_CODE: Mapping[str, type[BerthError]] = {
    "INVALID_ARGUMENT": InvalidArgumentError,
    "NOT_FOUND": NotFoundError,
    "ALREADY_EXISTS": AlreadyExistsError,
    "RESOURCE_EXHAUSTED": ResourceExhaustedError,
    "FAILED_PRECONDITION": FailedPreconditionError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "UNAUTHENTICATED": UnauthenticatedError,
    "ABORTED": AbortedError,
    "UNAVAILABLE": UnavailableError,
    "DEADLINE_EXCEEDED": DeadlineExceededError,
    "CANCELLED": CanceledError,
    "UNIMPLEMENTED": UnimplementedError,
    "OUT_OF_RANGE": OutOfRangeError,
    "INTERNAL": InternalError,
}

_DETAILS_KEY = "grpc-status-details-bin"
_DETAIL_NAME = b"berth.v1.ErrorDetail"
_CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


def class_of(reason: str) -> type[BerthError] | None:
    """The class of errors with a reason, such as "SANDBOX_NOT_FOUND". None for a reason that this client does not know.
    """
    return _BY_REASON.get(reason)


def error_of(error: grpc.RpcError, target: str = "the service", tls: bool = False) -> BerthError:
    """The typed error of a failed call to `target`. `tls`: whether the call used it."""
    code = error.code()
    text = error.details() or ""
    detail = detail_of(error)
    if detail is not None:
        return _typed(code.name, text, detail)
    if code is grpc.StatusCode.UNAVAILABLE:
        text = _unreachable(target, text, tls)
    return _BY_CODE.get(code.name, BerthError)(text or code.name, code=code.name)


def error_of_failure(failure: error_pb2.Failure) -> BerthError:
    """The typed error of a failed part of a call whose other parts continued."""
    return _typed(_CODE_NAMES.get(failure.code, "UNKNOWN"), failure.message, failure.detail)


def detail_of(error: grpc.RpcError) -> error_pb2.ErrorDetail | None:
    """The service's details about the error. None if the call failed on the way."""
    for key, value in _trailing(error):
        if key == _DETAILS_KEY and isinstance(value, bytes):
            # google.rpc.Status has its details in field 3, each as an Any.
            for any_bytes in (field for number, field in _fields(value) if number == 3):
                parts = dict(_fields(any_bytes))
                if parts.get(1, b"").endswith(_DETAIL_NAME):
                    return error_pb2.ErrorDetail.FromString(parts.get(2, b""))
    return None


def _typed(code: str, message: str, detail: error_pb2.ErrorDetail) -> BerthError:
    reason = _reason_name(detail.reason)
    made = _BY_REASON.get(reason) or _BY_CODE.get(code, BerthError)
    pause = detail.retry_after
    return made(
        message,
        code=code,
        reason=reason,
        metadata=MappingProxyType(dict(detail.metadata)),
        retry_after=pause.seconds + pause.nanos / 1e9 if detail.HasField("retry_after") else None,
    )


def _reason_name(number: int) -> str:
    value = error_pb2.ErrorReason.DESCRIPTOR.values_by_number.get(number)
    return f"UNKNOWN_{number}" if value is None else value.name.removeprefix("ERROR_REASON_")


def _unreachable(target: str, text: str, tls: bool) -> str:
    # gRPC mentions certificates even if the server did not speak TLS.
    is_tls = "WRONG_VERSION_NUMBER" not in text
    if is_tls and ("CERTIFICATE_VERIFY_FAILED" in text or "certificate" in text.lower()):
        advice = (
            "Its certificate is not signed by a CA that this client trusts (ca=; by default those of gRPC), or names "
            "another host."
        )
    elif "SSL" in text or "TLS" in text.upper():
        advice = "It does not speak TLS there as this client does: check ca= and tls=."
    else:
        advice = "Is it running (berth serve), and is this its address (BERTH_ADDRESS)?"
        if tls:
            # gRPC does not report the service's alert, and Node's TLS servers may send none.
            advice += " If it has --tls-client-ca, does it trust the certificate given as client_cert=?"
    return f"Cannot reach Berth at {target}. {advice} [{text}]"


def _trailing(error: grpc.RpcError) -> Iterable[Metadatum]:
    # The two kinds of gRPC error type their trailers differently. Both contain pairs, or are None.
    return cast("Iterable[Metadatum] | None", error.trailing_metadata()) or ()


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a message, as (number, bytes)."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        key = varint()
        length = varint()
        if key & 7 == 2:
            yield key >> 3, data[at : at + length]
            at += length
