import { Code } from "@connectrpc/connect";
import { ErrorReason as WireReason } from "../../gen/ts/berth/v1/error_pb.js";
import type { ErrorReason } from "../base/errors.ts";

/** How a reason leaves the service. */
export interface WireError {
  readonly code: Code;
  readonly reason: WireReason;
}

/** Reason → gRPC code and wire enum; the one place that says so. The compiler holds it complete. */
export const ERROR_TABLE: Readonly<Record<ErrorReason, WireError>> = {
  INVALID_ARGUMENT: { code: Code.InvalidArgument, reason: WireReason.INVALID_ARGUMENT },
  SANDBOX_NOT_FOUND: { code: Code.NotFound, reason: WireReason.SANDBOX_NOT_FOUND },
  PROCESS_NOT_FOUND: { code: Code.NotFound, reason: WireReason.PROCESS_NOT_FOUND },
  FILE_NOT_FOUND: { code: Code.NotFound, reason: WireReason.FILE_NOT_FOUND },
  WORKSPACE_NOT_FOUND: { code: Code.NotFound, reason: WireReason.WORKSPACE_NOT_FOUND },
  SESSION_NOT_FOUND: { code: Code.NotFound, reason: WireReason.SESSION_NOT_FOUND },
  RUN_NOT_FOUND: { code: Code.NotFound, reason: WireReason.RUN_NOT_FOUND },
  TOOL_NOT_FOUND: { code: Code.NotFound, reason: WireReason.TOOL_NOT_FOUND },
  SANDBOX_EXISTS: { code: Code.AlreadyExists, reason: WireReason.SANDBOX_EXISTS },
  REQUEST_ID_REUSED: { code: Code.AlreadyExists, reason: WireReason.REQUEST_ID_REUSED },
  FILE_EXISTS: { code: Code.AlreadyExists, reason: WireReason.FILE_EXISTS },
  SANDBOX_LIMIT: { code: Code.ResourceExhausted, reason: WireReason.SANDBOX_LIMIT },
  TOO_MANY_OPERATIONS: { code: Code.ResourceExhausted, reason: WireReason.TOO_MANY_OPERATIONS },
  MESSAGE_TOO_LARGE: { code: Code.ResourceExhausted, reason: WireReason.MESSAGE_TOO_LARGE },
  NO_SPACE: { code: Code.ResourceExhausted, reason: WireReason.NO_SPACE },
  IMAGE_UNAVAILABLE: { code: Code.FailedPrecondition, reason: WireReason.IMAGE_UNAVAILABLE },
  SANDBOX_START_FAILED: { code: Code.FailedPrecondition, reason: WireReason.SANDBOX_START_FAILED },
  SANDBOX_NOT_RUNNING: { code: Code.FailedPrecondition, reason: WireReason.SANDBOX_NOT_RUNNING },
  SANDBOX_REPLACED: { code: Code.FailedPrecondition, reason: WireReason.SANDBOX_REPLACED },
  UNSUPPORTED: { code: Code.FailedPrecondition, reason: WireReason.UNSUPPORTED },
  PROCESS_STATE: { code: Code.FailedPrecondition, reason: WireReason.PROCESS_STATE },
  FILE_KIND: { code: Code.FailedPrecondition, reason: WireReason.FILE_KIND },
  WORKSPACE_IN_USE: { code: Code.FailedPrecondition, reason: WireReason.WORKSPACE_IN_USE },
  RUN_STATE: { code: Code.FailedPrecondition, reason: WireReason.RUN_STATE },
  NOT_ALLOWED: { code: Code.PermissionDenied, reason: WireReason.NOT_ALLOWED },
  FILE_PERMISSION: { code: Code.PermissionDenied, reason: WireReason.FILE_PERMISSION },
  UNAUTHENTICATED: { code: Code.Unauthenticated, reason: WireReason.UNAUTHENTICATED },
  SANDBOX_DELETED: { code: Code.Aborted, reason: WireReason.SANDBOX_DELETED },
  SANDBOX_TERMINATED: { code: Code.Aborted, reason: WireReason.SANDBOX_TERMINATED },
  ENGINE_UNAVAILABLE: { code: Code.Unavailable, reason: WireReason.ENGINE_UNAVAILABLE },
  SHUTTING_DOWN: { code: Code.Unavailable, reason: WireReason.SHUTTING_DOWN },
  DEADLINE_EXCEEDED: { code: Code.DeadlineExceeded, reason: WireReason.DEADLINE_EXCEEDED },
  CANCELED: { code: Code.Canceled, reason: WireReason.CANCELED },
  UNIMPLEMENTED: { code: Code.Unimplemented, reason: WireReason.UNIMPLEMENTED },
  OFFSET_OUT_OF_RANGE: { code: Code.OutOfRange, reason: WireReason.OFFSET_OUT_OF_RANGE },
  ARCHIVE_REJECTED: { code: Code.InvalidArgument, reason: WireReason.ARCHIVE_REJECTED },
  DIRECTORY_NOT_EMPTY: { code: Code.FailedPrecondition, reason: WireReason.DIRECTORY_NOT_EMPTY },
  TRACE_NOT_FOUND: { code: Code.NotFound, reason: WireReason.TRACE_NOT_FOUND },
  WORKSPACE_BROKEN: { code: Code.FailedPrecondition, reason: WireReason.WORKSPACE_BROKEN },
  SESSION_START_FAILED: { code: Code.FailedPrecondition, reason: WireReason.SESSION_START_FAILED },
  SESSION_LOST: { code: Code.Aborted, reason: WireReason.SESSION_LOST },
  SANDBOX_IN_USE: { code: Code.FailedPrecondition, reason: WireReason.SANDBOX_IN_USE },
  ANSWER_DROPPED: { code: Code.FailedPrecondition, reason: WireReason.ANSWER_DROPPED },
  INTERNAL: { code: Code.Internal, reason: WireReason.INTERNAL },
};
