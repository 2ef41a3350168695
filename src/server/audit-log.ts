import { Code, type MethodImplSpec } from "@connectrpc/connect";
import { BerthError, type ErrorReason } from "../base/errors.ts";
import { safeJson } from "../base/safe-json.ts";
import {
  type Call,
  type CallObserver,
  type CallStatus,
  type Credentials,
  callOf,
  type Principal,
  statusName,
} from "./call.ts";
import type { RequestIterator } from "./request-bytes.ts";
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
 * scope or quota. A line contains ids, method names and codes, and no other data of the call. Callers choose ids, so
 * nothing in a line acts on the terminal on which it is read.
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
      ...whoOf(principal),
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

  /** Records that a page, such as the metrics, was refused. @param principal whose it was, if that is known */
  pageRefused({ peer, method }: Credentials, status: number, principal?: Principal): void {
    this.#write({
      ...whoOf(principal),
      ...{ peer, protocol: "http", method, ids: {}, decision: "refused", code: String(status) },
    });
  }

  #write(fields: Readonly<Record<string, unknown>>): void {
    this.#sink.append(safeJson({ time: new Date().toISOString(), event: "call", ...fields }));
  }
}

function whoOf(principal: Principal | undefined) {
  return {
    tenant: principal?.tenant,
    // An admin may act in another tenant than its own.
    acted_in: principal?.owner,
    token: principal?.tokenId,
    scope: principal?.scope,
  };
}

/** The line that replaces lost lines. */
export function auditGapLine(lines: number): string {
  return JSON.stringify({ time: new Date().toISOString(), event: "lost", lines });
}

type Context = Parameters<MethodImplSpec["impl"]>[1];

/** Wraps a method, so that audited calls collect the ids in the first request and the first response that have any. */
export function withSubjects(spec: MethodImplSpec): MethodImplSpec {
  const { input, output } = spec.method;
  const ask = (request: unknown, context: Context): boolean =>
    callOf(context).subjects?.add(input, request) ?? true;
  const answer = (message: unknown, context: Context): boolean => {
    const { subjects, changes } = callOf(context);
    // The response names what the call created. A read does not act on what it returns.
    return !changes || (subjects?.add(output, message) ?? true);
  };
  const tap = <T>(items: AsyncIterable<T>, context: Context, see: typeof ask): AsyncIterable<T> =>
    callOf(context).subjects === undefined ? items : tapUntil(items, (item) => see(item, context));
  switch (spec.kind) {
    case "unary": {
      const impl: typeof spec.impl = async (request, context) => {
        ask(request, context);
        const message = await spec.impl(request, context);
        answer(message, context);
        return message;
      };
      return { ...spec, impl };
    }
    case "server_streaming": {
      const impl: typeof spec.impl = (request, context) => {
        ask(request, context);
        return tap(spec.impl(request, context), context, answer);
      };
      return { ...spec, impl };
    }
    case "client_streaming": {
      const impl: typeof spec.impl = async (requests, context) => {
        const message = await spec.impl(tap(requests, context, ask), context);
        answer(message, context);
        return message;
      };
      return { ...spec, impl };
    }
    case "bidi_streaming": {
      const impl: typeof spec.impl = (requests, context) =>
        tap(spec.impl(tap(requests, context, ask), context), context, answer);
      return { ...spec, impl };
    }
  }
}

/** The same items. Passes each to `tap` until that returns true; the others cost nothing extra. */
function tapUntil<T>(items: AsyncIterable<T>, tap: (item: T) => boolean): AsyncIterable<T> {
  return {
    [Symbol.asyncIterator](): RequestIterator<T> {
      const iterator: RequestIterator<T> = items[Symbol.asyncIterator]();
      let next = async (): Promise<IteratorResult<T>> => {
        const item = await iterator.next();
        if (item.done || tap(item.value)) next = () => iterator.next();
        return item;
      };
      return {
        next: () => next(),
        return: (value) => iterator.return?.(value) ?? Promise.resolve({ done: true, value }),
        throw: (error) => iterator.throw?.(error) ?? Promise.reject(error),
        trustEnd: () => iterator.trustEnd?.(),
      };
    },
  };
}
