import { END_STREAM, enveloped, Frames } from "../rpc/frames.ts";
import type { HttpClient } from "./http.ts";

/**
 * Calls a method that streams its responses, over Connect in binary. `take` gets each message.
 * @throws the server's error if the call fails.
 */
export async function connectStream(
  client: HttpClient,
  path: string,
  message: Uint8Array,
  take: (message: Buffer) => void,
  timeoutMs?: number,
): Promise<void> {
  const answer = new ConnectAnswer(take);
  const headers = {
    ...CONNECT_HEADERS,
    ...(timeoutMs !== undefined && { "connect-timeout-ms": String(timeoutMs) }),
  };
  await client.post(path, headers, enveloped(message), answer.push);
  answer.end();
}

/** Headers of every streaming request. */
export const CONNECT_HEADERS = {
  "content-type": "application/connect+proto",
  "connect-protocol-version": "1",
} as const;

/** The body of a response: messages, and how the call ended. */
export class ConnectAnswer {
  readonly #frames: Frames;
  #end: { readonly error?: { readonly code: string; readonly message?: string } } | undefined;

  constructor(take: (message: Buffer) => void) {
    this.#frames = new Frames((flags, frame) => {
      if (flags === END_STREAM) this.#end = JSON.parse(frame.toString());
      else take(frame);
    });
  }

  readonly push = (chunk: Buffer): void => this.#frames.push(chunk);

  /** @throws unless the call succeeded. */
  end(): void {
    if (this.#end === undefined) throw new Error("the answer broke off");
    const { error } = this.#end;
    if (error) throw new Error(`${error.code}: ${error.message}`);
  }
}
