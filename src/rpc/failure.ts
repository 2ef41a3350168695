import { create } from "@bufbuild/protobuf";
import { ErrorDetailSchema, type Failure, FailureSchema } from "../../gen/ts/berth/v1/error_pb.js";
import { BerthError } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import { internalError, toConnectError } from "../server/error-conversion.ts";

/** Turns what a part of a call failed with into a part of its answer, as the call's own error would be. */
export function toFailure(logger: Logger, method: string, thrown: unknown): Failure {
  const known = thrown instanceof BerthError && thrown.reason !== "INTERNAL";
  const error = toConnectError(known ? thrown : internalError(logger, method, thrown));
  const [detail] = error.findDetails(ErrorDetailSchema);
  return create(FailureSchema, { code: error.code, message: error.rawMessage, detail });
}
