/** How a command ended, as reported by the peer's own interface. */
export interface Result {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  /** Undefined if the peer does not report it. */
  readonly exitCode: number | undefined;
}

export interface RunOptions {
  /** After this time the peer should end the command. Then the call returns or fails. */
  readonly timeoutMs?: number;
}

/** A sandbox of a peer, ready for commands. */
export interface PeerSandbox {
  /** The container behind it, for inspecting it from outside. */
  containerId(): Promise<string>;
  /** Runs a line in the image's shell to its end. Rejects if the peer has no result. */
  run(line: string, options?: RunOptions): Promise<Result>;
  /** Writes a file of `bytes` bytes, all {@link FILL}. Resolves when the peer reports that it is written. */
  upload(path: string, bytes: number): Promise<void>;
  /** Reads a whole file. Rejects unless it has `bytes` bytes. */
  download(path: string, bytes: number): Promise<void>;
  /** Resolves when the sandbox is gone. */
  remove(): Promise<void>;
}

/** A peer that can be measured here. */
export interface Peer {
  readonly name: string;
  /** Creates a sandbox. Resolves when it accepts commands. */
  create(): Promise<PeerSandbox>;
  /** Pids on this machine of the processes that serve all sandboxes, without the Docker daemon. */
  readonly pids: readonly number[];
  /** Ends what it started. Idempotent. */
  close(): Promise<void>;
}

/** What the peers of one run have in common. */
export interface PeerContext {
  readonly image: string;
  readonly signal: AbortSignal;
}

/** The byte that uploaded files consist of. It is text, because some peers support only text. */
export const FILL = 0x5a;
/** How many bytes are sent at once. */
export const CHUNK_BYTES = 256 * 1024;

/** Counts downloaded bytes. */
export class Counter {
  #bytes = 0;

  readonly take = (chunk: Uint8Array): void => {
    this.#bytes += chunk.length;
  };

  /** @throws unless this many bytes arrived. */
  expect(bytes: number): void {
    if (this.#bytes !== bytes) throw new Error(`${this.#bytes} bytes of ${bytes} came`);
  }
}
