import { once } from "node:events";
import http from "node:http";
import { CHUNK_BYTES, FILL } from "./peer.ts";

const CHUNK = Buffer.alloc(CHUNK_BYTES, FILL);

/** A number of bytes, all {@link FILL}. */
export function* filling(bytes: number): Generator<Buffer> {
  for (let left = bytes; left > 0; left -= CHUNK_BYTES) {
    yield left < CHUNK_BYTES ? CHUNK.subarray(0, left) : CHUNK;
  }
}

/** The same as a part of a form, with what comes before and after it. */
export function formOf(
  before: string,
  bytes: number,
  after: string,
): { readonly parts: Iterable<Buffer>; readonly length: number } {
  const parts = function* () {
    yield Buffer.from(before);
    yield* filling(bytes);
    yield Buffer.from(after);
  };
  return { parts: parts(), length: Buffer.byteLength(before) + bytes + Buffer.byteLength(after) };
}

/** A minimal client for one HTTP/1.1 server, so that every peer's client costs the same. */
export class HttpClient {
  readonly #agent = new http.Agent({ keepAlive: true });
  readonly #origin: string;

  constructor(address: string) {
    this.#origin = `http://${address}`;
  }

  /** Sends a body. `take` gets the bytes of the response as they arrive. Rejects unless the status is below 300. */
  async post(
    path: string,
    headers: http.OutgoingHttpHeaders,
    body: Uint8Array,
    take: (chunk: Buffer) => void = () => {},
  ): Promise<void> {
    const request = this.#request("POST", path, { ...headers, "content-length": body.length });
    request.end(body);
    await answer(request, take);
  }

  /**
   * Sends parts as fast as they are accepted. `take` gets the bytes of the response.
   * @param length of all parts in bytes. Undefined: they are sent as chunks.
   */
  async send(
    path: string,
    headers: http.OutgoingHttpHeaders,
    parts: Iterable<Uint8Array>,
    length: number | undefined,
    take: (chunk: Buffer) => void = () => {},
  ): Promise<void> {
    const known = length === undefined ? {} : { "content-length": length };
    const request = this.#request("POST", path, { ...headers, ...known });
    const answered = answer(request, take);
    answered.catch(() => {});
    for (const part of parts) {
      // A request that has its response emits no more "drain".
      if (!request.write(part)) await Promise.race([once(request, "drain"), answered]);
    }
    request.end();
    await answered;
  }

  async get(path: string, take: (chunk: Buffer) => void): Promise<void> {
    const request = this.#request("GET", path, {});
    request.end();
    await answer(request, take);
  }

  close(): void {
    this.#agent.destroy();
  }

  #request(method: string, path: string, headers: http.OutgoingHttpHeaders): http.ClientRequest {
    const request = http.request(this.#origin + path, { method, headers, agent: this.#agent });
    request.setNoDelay(true);
    // A server may send something after its response. An incomplete response fails by itself.
    request.on("error", () => {});
    return request;
  }
}

async function answer(request: http.ClientRequest, take: (chunk: Buffer) => void): Promise<void> {
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  const { statusCode = 0 } = response;
  if (statusCode < 300) response.on("data", take);
  else take = () => {};
  const failure: Buffer[] = [];
  if (statusCode >= 300) response.on("data", (chunk) => failure.push(chunk));
  await once(response, "end");
  if (statusCode >= 300)
    throw new Error(`HTTP ${statusCode}: ${Buffer.concat(failure).toString().slice(0, 500)}`);
}
