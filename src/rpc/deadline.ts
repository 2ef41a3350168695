import type { IncomingHttpHeaders } from "node:http";
import { parseTimeout as parseConnect } from "@connectrpc/connect/protocol-connect";
import { parseTimeout as parseGrpc } from "@connectrpc/connect/protocol-grpc";
import { BerthError } from "../core/errors.ts";
import { MAX_TIMEOUT_MS } from "./limits.ts";
import type { RpcProtocol } from "./rpc-protocol.ts";

/** How long the caller gives a call. */
export type Deadline =
  | { readonly kind: "none" }
  | { readonly kind: "after"; readonly ms: number }
  /** It is malformed, or longer than a timer can be. */
  | { readonly kind: "refused"; readonly error: BerthError };

/** The headers that carry a deadline, one for each kind of protocol. */
export const DEADLINE_HEADERS = {
  grpc: "grpc-timeout",
  "grpc-web": "grpc-timeout",
  connect: "connect-timeout-ms",
} as const;

const NONE: Deadline = { kind: "none" };

/** Reads the deadline of a call from the headers of its request. */
export function readDeadline(protocol: RpcProtocol, headers: IncomingHttpHeaders): Deadline {
  const name = DEADLINE_HEADERS[protocol];
  const value = headers[name];
  if (typeof value !== "string") return NONE;
  const parse = protocol === "connect" ? parseConnect : parseGrpc;
  const { timeoutMs, error } = parse(value, MAX_TIMEOUT_MS);
  if (!error && timeoutMs !== undefined) return { kind: "after", ms: timeoutMs };
  const problem = timeoutMs === undefined ? "is not a valid deadline" : "must not be longer than 24 days";
  return {
    kind: "refused",
    error: new BerthError("INVALID_ARGUMENT", `${name}: ${problem}`, { metadata: { field: name } }),
  };
}
