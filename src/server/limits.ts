import { BerthError } from "../base/errors.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const DAY = 24 * 60 * MINUTE;

/** Longest timeout; a longer deadline of a call counts as this. Node turns a timer of 2^31 ms or more into one of 1 ms. */
export const MAX_TIMEOUT_MS = 24 * DAY;

/** Bounds on what clients may ask of the port. */
export interface RpcLimits {
  /** Largest request message in bytes, counted after decompression. */
  readonly readMaxBytes: number;
  /** Exceptions to {@link readMaxBytes}, by method: `"berth.v1.FileService/WriteFile"`. */
  readonly readMaxBytesByMethod: Readonly<Record<string, number>>;
  /** What half-received requests may hold in memory, in bytes, all calls together. */
  readonly maxReceivingBytes: number;
  /** Connections open at once; further ones are closed as they come. */
  readonly maxConnections: number;
  /** Calls at once on one HTTP/2 connection; a client queues what is beyond. */
  readonly maxConcurrentStreams: number;
  /** How long a connection may take from its first byte to show its protocol, and a new one for its TLS handshake. */
  readonly sniffTimeoutMs: number;
  /** How long a request's headers may take over HTTP/1.1. */
  readonly headersTimeoutMs: number;
  /**
   * How long a connection of HTTP/1.1 stays open between two requests, and any new one before its first. Longer than
   * clients keep theirs (Go's 90 s, 60 s in many proxies): where the server is the first to close, a request that is on
   * its way fails.
   */
  readonly keepAliveTimeoutMs: number;
  /** How long the request message of a call may take to arrive. Streams of requests are not bounded by it. */
  readonly requestTimeoutMs: number;
  /** How often a connection is asked whether its other end still lives. */
  readonly pingIntervalMs: number;
  /** How long that answer may take. */
  readonly pingTimeoutMs: number;
}

export const DEFAULT_LIMITS: RpcLimits = {
  readMaxBytes: 4 * MIB,
  readMaxBytesByMethod: {},
  maxReceivingBytes: 512 * MIB,
  maxConnections: 4096,
  maxConcurrentStreams: 1000,
  sniffTimeoutMs: 10 * SECOND,
  headersTimeoutMs: 15 * SECOND,
  keepAliveTimeoutMs: 2 * MINUTE,
  requestTimeoutMs: 5 * MINUTE,
  pingIntervalMs: 30 * SECOND,
  pingTimeoutMs: 15 * SECOND,
};

/** The largest request message that `method` ("package.Service/Method") takes, in bytes. */
export function readMaxBytesOf(limits: RpcLimits, method: string): number {
  return limits.readMaxBytesByMethod[method] ?? limits.readMaxBytes;
}

/**
 * Bounds what half-received requests, and data that waits for its reader,
 * may hold in memory, all calls together. The bound on one message alone would
 * let one connection hold thousands of messages that never end.
 */
export class ReceiveBudget {
  readonly #limitBytes: number;
  #heldBytes = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /** Bytes that are held now. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** Runs `work`, during which so many bytes are held. @throws BerthError `TOO_MANY_OPERATIONS` if there is no room for them */
  async hold<T>(bytes: number, work: () => Promise<T>): Promise<T> {
    const account = this.open();
    account.charge(bytes);
    try {
      return await work();
    } finally {
      account.close();
    }
  }

  /** Opens an account for one call, which must be closed. */
  open(): ReceiveAccount {
    let held = 0;
    return {
      charge: (bytes) => {
        if (this.#heldBytes + bytes > this.#limitBytes) throw exhausted();
        held += bytes;
        this.#heldBytes += bytes;
      },
      close: () => {
        this.#heldBytes -= held;
        held = 0;
      },
    };
  }
}

/** What one call holds of a {@link ReceiveBudget}. */
export interface ReceiveAccount {
  /** @throws BerthError `TOO_MANY_OPERATIONS` if the budget has no room for these bytes */
  charge(bytes: number): void;
  /** Gives everything back; calling it again does nothing. */
  close(): void;
}

function exhausted(): BerthError {
  return new BerthError(
    "TOO_MANY_OPERATIONS",
    "The server is receiving as much as it can hold. Try again in a moment.",
    { retryAfterMs: 1000 },
  );
}
