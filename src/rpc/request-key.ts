import { createHash } from "node:crypto";
import { type DescMessage, type MessageShape, toBinary } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import { ownerOf } from "../server/call.ts";
import type { RequestKey } from "../state/request-log.ts";
import { optionalCallerId } from "./validate/caller-id.ts";

/**
 * The key under which a request's answer is remembered. The fingerprint is a
 * hash of the whole request: a retry sends the same message again.
 */
export function requestKey<Desc extends DescMessage>(
  context: HandlerContext,
  schema: Desc,
  request: MessageShape<Desc> & { readonly requestId: string },
): RequestKey {
  const requestId = optionalCallerId("request_id", request.requestId) ?? "";
  const fingerprint =
    requestId === "" ? "" : createHash("sha256").update(canonical(schema, request)).digest("base64");
  return { owner: ownerOf(context), method: context.method.name, requestId, fingerprint };
}

/** The message's bytes, with map entries in an order of their own: a client need not send them in the same one twice. */
function canonical<Desc extends DescMessage>(schema: Desc, request: MessageShape<Desc>): Uint8Array {
  return toBinary(schema, sortKeys(request) as MessageShape<Desc>);
}

/** The same value with the keys of every object in it in order: a map's entries, and a message's fields, which have their order by number. */
function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return value;
  const entries = Object.entries(value).map(([key, part]) => [key, sortKeys(part)] as const);
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
}
