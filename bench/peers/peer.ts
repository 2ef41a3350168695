/** How a command ended, as the peer's own interface tells it. */
export interface Result {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  /** Undefined where the peer does not say. */
  readonly exitCode: number | undefined;
}

export interface RunOptions {
  /** After this the peer is to end the command; the call returns or fails then. */
  readonly timeoutMs?: number;
}

/** A sandbox of a peer, ready for commands. */
export interface PeerSandbox {
  /** The container behind it, for looking at it from outside. */
  containerId(): Promise<string>;
  /** Runs a line of the image's shell to its end. Rejects where the peer has no result. */
  run(line: string, options?: RunOptions): Promise<Result>;
  /** Writes a file of `bytes` bytes that are all {@link FILL}. Resolves when the peer says that it is there. */
  upload(path: string, bytes: number): Promise<void>;
  /** Reads a file to its end. Rejects unless it has `bytes` bytes. */
  download(path: string, bytes: number): Promise<void>;
  /** Resolves when it is gone. */
  remove(): Promise<void>;
}

/** A peer that can be measured here. */
export interface Peer {
  readonly name: string;
  /** Creates a sandbox; resolves when it takes commands. */
  create(): Promise<PeerSandbox>;
  /** Processes of this machine that serve all sandboxes, without the Docker daemon. */
  readonly pids: readonly number[];
  /** Ends what it started. Idempotent. */
  close(): Promise<void>;
}

/** What the peers of one run have in common. */
export interface PeerContext {
  readonly image: string;
  readonly signal: AbortSignal;
}

/** The byte that uploaded files consist of: text, for peers that know nothing else. */
export const FILL = 0x5a;
/** Bytes that are sent at once. */
export const CHUNK_BYTES = 256 * 1024;

/** Counts what is downloaded. */
export class Counter {
  #bytes = 0;

  readonly take = (chunk: Uint8Array): void => {
    this.#bytes += chunk.length;
  };

  /** @throws unless so many bytes came. */
  expect(bytes: number): void {
    if (this.#bytes !== bytes) throw new Error(`${this.#bytes} bytes of ${bytes} came`);
  }
}
