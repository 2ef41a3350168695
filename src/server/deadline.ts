import type { IncomingHttpHeaders } from "node:http";
import { parseTimeout as parseConnect } from "@connectrpc/connect/protocol-connect";
import { parseTimeout as parseGrpc } from "@connectrpc/connect/protocol-grpc";
import { BerthError } from "../base/errors.ts";
import type { RpcProtocol } from "./http-message.ts";
import { MAX_TIMEOUT_MS } from "./limits.ts";

/** How long the caller gives a call. */
export type Deadline =
  | { readonly kind: "none" }
  | { readonly kind: "after"; readonly ms: number }
  /** It is malformed. */
  | { readonly kind: "refused"; readonly error: BerthError };

/** The headers that carry a deadline, one for each kind of protocol. */
export const DEADLINE_HEADERS = {
  grpc: "grpc-timeout",
  "grpc-web": "grpc-timeout",
  connect: "connect-timeout-ms",
} as const;

const NONE: Deadline = { kind: "none" };

/**
 * Reads the deadline of a call from the headers of its request. One that is
 * longer than {@link MAX_TIMEOUT_MS} counts as that: clients that mean "no
 * deadline" send the largest number they have.
 */
export function readDeadline(protocol: RpcProtocol, headers: IncomingHttpHeaders): Deadline {
  const name = DEADLINE_HEADERS[protocol];
  const value = headers[name];
  if (typeof value !== "string") return NONE;
  const parse = protocol === "connect" ? parseConnect : parseGrpc;
  const { timeoutMs } = parse(value, MAX_TIMEOUT_MS);
  if (timeoutMs !== undefined) return { kind: "after", ms: Math.min(timeoutMs, MAX_TIMEOUT_MS) };
  return {
    kind: "refused",
    error: new BerthError("INVALID_ARGUMENT", `${name}: is not a valid deadline`, {
      metadata: { field: name },
    }),
  };
}
