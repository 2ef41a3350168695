import { base64Decode } from "@bufbuild/protobuf/wire";
import { invalidArgument } from "../base/errors.ts";
import type { HttpRequest } from "./http-message.ts";

/** The message of a read that was called by GET. */
interface GetMessage {
  /** The headers that a POST of the same message has. */
  readonly header: Readonly<Record<string, string>>;
  /** @throws BerthError `INVALID_ARGUMENT` for what is not base64 */
  readonly bytes: () => Uint8Array;
}

/**
 * Reads the query of a GET as Connect specifies it: `encoding` (`json` or
 * `proto`), `message`, `base64=1` and `compression`.
 *
 * @returns undefined without an encoding that the server knows
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
