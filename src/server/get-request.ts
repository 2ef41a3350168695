import { base64Decode } from "@bufbuild/protobuf/wire";
import { invalidArgument } from "../base/errors.ts";
import type { HttpRequest } from "./http-message.ts";

/** The message of a read by GET. */
interface GetMessage {
  /** The headers that a POST of the same message would have. */
  readonly header: Readonly<Record<string, string>>;
  /** @throws BerthError `INVALID_ARGUMENT` if it is not base64 */
  readonly bytes: () => Uint8Array;
}

/**
 * Reads the query of a GET as specified by Connect: `encoding` (`json` or `proto`), `message`, `base64=1` and
 * `compression`.
 *
 * @returns undefined without a known encoding
 */
export function getMessage(request: HttpRequest): GetMessage | undefined {
  const { url = "" } = request;
  const query = new URLSearchParams(url.slice(url.indexOf("?") + 1));
  const encoding = query.get("encoding");
  if (encoding !== "json" && encoding !== "proto") return undefined;
  const compression = query.get("compression");
  const message = query.get("message") ?? "";
  return {
    header: {
      "content-type": `application/${encoding}`,
      ...(compression !== null && { "content-encoding": compression }),
    },
    bytes: () => (query.get("base64") === "1" ? fromBase64(message) : Buffer.from(message)),
  };
}

function fromBase64(text: string): Uint8Array {
  try {
    return base64Decode(text);
  } catch {
    throw invalidArgument("message", "is not base64, which base64=1 says it is");
  }
}
