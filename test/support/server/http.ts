import { once } from "node:events";
import http2 from "node:http2";

/** A response, with HTTP/2 trailers. */
export interface RawResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly trailers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Sends one request over HTTP/2, and reads the whole response. */
export async function http2Request(
  url: string,
  headers: Record<string, string>,
  body: Buffer | string = "",
): Promise<RawResponse> {
  const session = http2.connect(url);
  try {
    const stream = session.request({ ":method": "POST", ...headers });
    let trailers: Record<string, string> = {};
    stream.on("trailers", (got) => {
      // Without the symbols that Node adds.
      trailers = Object.fromEntries(Object.entries(got as Record<string, string>));
    });
    const response = once(stream, "response");
    stream.end(body);
    const [got] = (await response) as [Record<string, string>];
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    return { status: Number(got[":status"]), headers: got, trailers, body: Buffer.concat(chunks).toString() };
  } finally {
    session.destroy();
  }
}

/** Adds gRPC's prefix to bytes. `length`, if given, may be wrong on purpose. */
export function grpcFrame(bytes: Uint8Array, flags = 0, length = bytes.length): Buffer {
  const prefix = Buffer.alloc(5);
  prefix[0] = flags;
  prefix.writeUInt32BE(length, 1);
  return Buffer.concat([prefix, bytes]);
}
