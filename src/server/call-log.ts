import { Code } from "@connectrpc/connect";
import { BerthError } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import { type Call, type CallObserver, type CallStatus, statusName } from "./call.ts";

/** Codes that mean a fault of the server, unless the request was invalid. */
const SEVERE: ReadonlySet<CallStatus> = new Set([Code.Internal, Code.Unknown, Code.DataLoss]);

/** Codes that an operator needs to see. */
const EXPLAINED: ReadonlySet<CallStatus> = new Set([Code.Unavailable, Code.FailedPrecondition, Code.Aborted]);

/** Logs one line for every call that has ended. Never logs headers, or anything that quotes a payload. */
export class CallLog implements CallObserver {
  readonly #logger: Logger;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  started(): void {}

  ended(call: Call, status: CallStatus): void {
    const cause = call.failure?.cause;
    const fields = {
      method: call.method === "" ? "unknown" : call.method,
      code: statusName(status),
      reason: cause instanceof BerthError ? cause.reason : undefined,
      duration_ms: Math.round(call.ageMs * 1000) / 1000,
      peer: call.peer,
      owner: call.owner,
      token: call.principal?.tokenId,
      protocol: call.protocol,
      err: EXPLAINED.has(status) ? cause?.cause : undefined,
    };
    if (SEVERE.has(status) && !call.failure?.ofRequest) this.#logger.error(fields, "rpc");
    // Health checks arrive every few seconds.
    else if (call.method.startsWith("grpc.health.")) this.#logger.debug(fields, "rpc");
    else this.#logger.info(fields, "rpc");
  }
}
