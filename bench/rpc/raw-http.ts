import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import { END_STREAM, enveloped, Frames } from "./frames.ts";

/** How a client without a library uses a protocol. */
export interface Dialect {
  readonly name: string;
  readonly version: 1 | 2;
  readonly protocol: "grpc" | "connect";
  readonly codec: "proto" | "json";
}

/** Calls streaming methods with plain HTTP, so that the client costs the same for every {@link Dialect}. */
export class RawHttpClient {
  readonly #dialect: Dialect;
  readonly #origin: string;
  readonly #agent = new http.Agent({ keepAlive: true });
  #session: http2.ClientHttp2Session | undefined;

  constructor(address: string, dialect: Dialect) {
    this.#origin = `http://${address}`;
    this.#dialect = dialect;
  }

  /** Calls a method. `take` gets each message. Rejects unless the call succeeds. */
  async stream(path: string, message: Uint8Array, take: (message: Buffer) => void): Promise<void> {
    const body = enveloped(message);
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
