import { Code } from "@connectrpc/connect";
import {
  type EnvelopedMessage,
  encodeEnvelope,
  transformSplitEnvelope,
  type UniversalServerResponse,
} from "@connectrpc/connect/protocol";
import { codeFromString, codeToHttpStatus, endStreamFlag } from "@connectrpc/connect/protocol-connect";
import { contentTypeOf, type HttpRequest } from "./http-message.ts";
import type { Route } from "./routes.ts";

/**
 * Whether a call is plain JSON to a method that answers with a stream. Connect
 * has no such calls; Berth answers them with one JSON message a line.
 */
export function wantsJsonLines({ method }: Route, request: HttpRequest): boolean {
  return (
    method.methodKind === "server_streaming" && /^application\/json *(;|$)/i.test(contentTypeOf(request))
  );
}

/** Ends a line. */
export const NEWLINE = Buffer.from("\n");

/** Restates the headers of a call of plain JSON as those of a Connect stream. */
export function asConnectStream(header: Headers): void {
  header.set("content-type", "application/connect+json");
  // Compressed messages would have to be read again to become lines.
  header.delete("connect-accept-encoding");
  header.delete("connect-content-encoding");
  header.delete("content-length");
  const encoding = header.get("content-encoding");
  header.delete("content-encoding");
  // What is left here cannot be read, and the library says so.
  if (encoding !== null) header.set("connect-content-encoding", encoding);
}

/** Puts the one message of a call into the envelope that it has in a Connect stream. */
export async function* enveloped(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const message of body) yield encodeEnvelope(0, message);
}

/**
 * Restates an uncompressed Connect stream as lines of JSON. The error that ends
 * it is the last line, in the form that it has in a unary call; before any
 * message it is the whole answer, with its status.
 */
export async function toJsonLines({
  body = none(),
  ...head
}: UniversalServerResponse): Promise<UniversalServerResponse> {
  const messages = transformSplitEnvelope(Number.MAX_SAFE_INTEGER)(body)[Symbol.asyncIterator]();
  const first = await messages.next();
  const error = first.done ? undefined : errorOf(first.value);
  const header = new Headers(head.header);
  header.set("content-type", error ? "application/json" : "application/x-ndjson");
  const status = error ? codeToHttpStatus(codeFromString(error.code) ?? Code.Unknown) : head.status;
  return { ...head, status, header, body: lines(first, messages) };
}

async function* lines(
  first: IteratorResult<EnvelopedMessage>,
  messages: AsyncIterator<EnvelopedMessage>,
): AsyncGenerator<Uint8Array> {
  try {
    for (let next = first; !next.done; next = await messages.next()) {
      const message = next.value;
      if (message.flags !== endStreamFlag) yield Buffer.concat([message.data, NEWLINE]);
      const error = errorOf(message);
      if (error) yield Buffer.concat([Buffer.from(JSON.stringify(error)), NEWLINE]);
    }
  } finally {
    await messages.return?.();
  }
}

/** The error that a message of a Connect stream ends it with. */
function errorOf({ flags, data }: EnvelopedMessage): { readonly code: string } | undefined {
  return flags === endStreamFlag ? JSON.parse(Buffer.from(data).toString()).error : undefined;
}

async function* none(): AsyncGenerator<Uint8Array> {}
