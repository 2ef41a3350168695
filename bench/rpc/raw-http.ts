import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";

/** A protocol as a client without a library speaks it. */
export interface Dialect {
  readonly name: string;
  readonly version: 1 | 2;
  readonly protocol: "grpc" | "connect";
  readonly codec: "proto" | "json";
}

/** Flags (one byte) and length (four) in front of every message of a stream. */
const PREFIX_BYTES = 5;
const END_STREAM = 2;

/**
 * Calls methods that stream their answers, with no more than HTTP: what a client
 * costs is the same for every {@link Dialect}.
 */
export class RawHttpClient {
  readonly #dialect: Dialect;
  readonly #origin: string;
  readonly #agent = new http.Agent({ keepAlive: true });
  #session: http2.ClientHttp2Session | undefined;

  constructor(address: string, dialect: Dialect) {
    this.#origin = `http://${address}`;
    this.#dialect = dialect;
  }

  /** Calls a method; `take` gets each message. Rejects unless the call ends well. */
  async stream(path: string, message: Uint8Array, take: (message: Buffer) => void): Promise<void> {
    const prefix = Buffer.alloc(PREFIX_BYTES);
    prefix.writeUInt32BE(message.length, 1);
    const body = Buffer.concat([prefix, message]);
    const { version, protocol, codec } = this.#dialect;
    const headers = {
      "content-type": protocol === "grpc" ? "application/grpc+proto" : `application/connect+${codec}`,
    };
    let ended = protocol === "grpc";
    const frames = new Frames((flags, frame) => {
      if (flags !== END_STREAM) return take(frame);
      ended = !("error" in JSON.parse(frame.toString()));
    });
    if (version === 1) await this.#post(path, headers, body, (chunk) => frames.push(chunk));
    else await this.#request(path, headers, body, (chunk) => frames.push(chunk));
    if (!ended) throw new Error(`${this.#dialect.name}: the call failed`);
  }

  close(): void {
    this.#session?.close();
    this.#agent.destroy();
  }

  async #post(
    path: string,
    headers: http.OutgoingHttpHeaders,
    body: Buffer,
    onData: (chunk: Buffer) => void,
  ): Promise<void> {
    const request = http.request(this.#origin + path, { method: "POST", headers, agent: this.#agent });
    request.end(body);
    const [response] = (await once(request, "response")) as [http.IncomingMessage];
    response.on("data", onData);
    await once(response, "end");
  }

  async #request(
    path: string,
    headers: http2.OutgoingHttpHeaders,
    body: Buffer,
    onData: (chunk: Buffer) => void,
  ): Promise<void> {
    this.#session ??= await connect(this.#origin);
    const stream = this.#session.request({ ":method": "POST", ":path": path, ...headers, te: "trailers" });
    stream.end(body);
    let status: unknown;
    stream.once("trailers", (trailers) => {
      status = trailers["grpc-status"];
    });
    stream.on("data", onData);
    await once(stream, "end");
    if (this.#dialect.protocol === "grpc" && status !== "0") throw new Error(`grpc-status ${status}`);
  }
}

const MIB = 1024 * 1024;

async function connect(origin: string): Promise<http2.ClientHttp2Session> {
  const session = http2.connect(origin, { settings: { initialWindowSize: 8 * MIB } });
  await once(session, "connect");
  session.setLocalWindowSize(8 * MIB);
  return session;
}

/** Splits a body into its messages. */
class Frames {
  readonly #take: (flags: number, frame: Buffer) => void;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #wanted = PREFIX_BYTES;

  constructor(take: (flags: number, frame: Buffer) => void) {
    this.#take = take;
  }

  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes < this.#wanted) return;
    let rest = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks);
    for (;;) {
      this.#wanted = rest.length < PREFIX_BYTES ? PREFIX_BYTES : PREFIX_BYTES + rest.readUInt32BE(1);
      if (rest.length < this.#wanted) break;
      this.#take(rest[0] ?? 0, rest.subarray(PREFIX_BYTES, this.#wanted));
      rest = rest.subarray(this.#wanted);
    }
    this.#chunks = [rest];
    this.#bytes = rest.length;
  }
}
