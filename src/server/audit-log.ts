import { Code } from "@connectrpc/connect";
import { BerthError, type ErrorReason } from "../base/errors.ts";
import type { Call, CallObserver, CallStatus, Credentials } from "./call.ts";
import { statusName } from "./call.ts";
import { Subjects } from "./subjects.ts";

/** Receives lines of JSON. Never makes its caller wait. */
interface AuditSink {
  append(line: string): void;
}

/** Codes of calls that were refused because of their caller or a limit. */
const REFUSING: ReadonlySet<CallStatus> = new Set([
  Code.Unauthenticated,
  Code.PermissionDenied,
  Code.ResourceExhausted,
]);
/** Reasons with these codes that are failures of the work instead of refusals. */
const NO_REFUSAL: ReadonlySet<ErrorReason> = new Set(["FILE_PERMISSION", "MESSAGE_TOO_LARGE", "NO_SPACE"]);

/**
 * Writes a line at the end of every call that could change something, and for every call that is refused for its token,
 * scope or quota. A line contains ids, method names and codes, and no other data of the call.
 */
export class AuditLog implements CallObserver {
  readonly #sink: AuditSink;
  readonly #reads: boolean;

  /** @param options.reads whether to write a line for calls that only read, too */
  constructor(sink: AuditSink, { reads }: { readonly reads: boolean }) {
    this.#sink = sink;
    this.#reads = reads;
  }

  started(call: Call): void {
    call.subjects = new Subjects();
  }

  ended(call: Call, status: CallStatus): void {
    const cause = call.failure?.cause;
    const reason = cause instanceof BerthError ? cause.reason : undefined;
    const refused = REFUSING.has(status) && !(reason && NO_REFUSAL.has(reason));
    if (!refused && !call.changes && !(this.#reads && call.method.startsWith("berth."))) return;
    const { subjects, principal } = call;
    this.#write({
      tenant: principal?.tenant,
      // An admin may act in another tenant than its own.
      acted_in: principal?.owner,
      token: principal?.tokenId,
      scope: principal?.scope,
      peer: call.peer,
      protocol: call.protocol,
      method: call.method,
      ids: subjects?.ids ?? {},
      request_id: subjects?.requestId || undefined,
      decision: refused ? "refused" : "allowed",
      code: statusName(status),
      reason,
      duration_ms: Math.round(call.ageMs * 1000) / 1000,
    });
  }

  /** Records that a page, such as the metrics, was refused. */
  pageRefused({ peer, method }: Credentials, status: number): void {
    this.#write({ peer, protocol: "http", method, ids: {}, decision: "refused", code: String(status) });
  }

  #write(fields: Readonly<Record<string, unknown>>): void {
    this.#sink.append(JSON.stringify({ time: new Date().toISOString(), event: "call", ...fields }));
  }
}

/** The line that replaces lost lines. */
export function auditGapLine(lines: number): string {
  return JSON.stringify({ time: new Date().toISOString(), event: "lost", lines });
}
