import type { DescMethod } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import {
  type EnvelopedMessage,
  encodeEnvelope,
  transformSplitEnvelope,
  type UniversalServerResponse,
} from "@connectrpc/connect/protocol";
import { codeFromString, codeToHttpStatus, endStreamFlag } from "@connectrpc/connect/protocol-connect";
import { BerthError, invalidArgument } from "../base/errors.ts";
import { contentTypeOf, type HttpRequest } from "./http-message.ts";
import type { Route } from "./routes.ts";

/**
 * Whether a call sends plain JSON to a method that streams its response. Connect has no such calls; Berth answers with
 * one JSON message per line.
 */
export function wantsJsonLines({ method }: Route, request: HttpRequest): boolean {
  return (
    method.methodKind === "server_streaming" && /^application\/json *(;|$)/i.test(contentTypeOf(request))
  );
}

/** Ends a line. */
export const NEWLINE = Buffer.from("\n");

/** Whether a message starts like JSON text, which no message in an envelope does. */
function isJsonText(byte: number | undefined): boolean {
  return byte !== undefined && '{[" \t\r\n'.includes(String.fromCharCode(byte));
}

const CONTENT_TYPE = "content-type";

/** @throws BerthError `INVALID_ARGUMENT` for JSON text instead of an envelope */
export function assertEnveloped(method: DescMethod, firstByte: number | undefined): void {
  if (isJsonText(firstByte)) throw unenveloped(method);
}

function unenveloped({ methodKind }: DescMethod): BerthError {
  const advice =
    methodKind === "server_streaming"
      ? 'Send it with "content-type: application/json": the answer is then one JSON message per line.'
      : "Put a zero byte and the length in front of each message, as four bytes, big-endian; a client of gRPC or Connect does.";
  return invalidArgument(
    CONTENT_TYPE,
    `says that messages have envelopes, but the body is plain JSON. ${advice}`,
  );
}

/** Whether a call failed because it sent plain JSON instead of envelopes. */
export function isUnenveloped(cause: unknown): boolean {
  return cause instanceof BerthError && cause.metadata.field === CONTENT_TYPE;
}

/** Changes the headers of a plain JSON call to those of a Connect stream. */
export function asConnectStream(header: Headers): void {
  header.set("content-type", "application/connect+json");
  // Compressed messages would have to be decompressed to become lines.
  header.delete("connect-accept-encoding");
  header.delete("connect-content-encoding");
  header.delete("content-length");
  const encoding = header.get("content-encoding");
  header.delete("content-encoding");
  // If it is not readable, the library reports that.
  if (encoding !== null) header.set("connect-content-encoding", encoding);
}

/** Puts the message of a call into an envelope, as in a Connect stream. */
export async function* enveloped(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const message of body) yield encodeEnvelope(0, message);
}

/**
 * Converts an uncompressed Connect stream to lines of JSON. The error that ends it is the last line, in the form of a
 * unary error. If there is no message before it, it is the whole response and sets the HTTP status.
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

/** The error in the last message of a Connect stream, if any. */
function errorOf({ flags, data }: EnvelopedMessage): { readonly code: string } | undefined {
  return flags === endStreamFlag ? JSON.parse(Buffer.from(data).toString()).error : undefined;
}

async function* none(): AsyncGenerator<Uint8Array> {}
