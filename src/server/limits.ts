import { BerthError } from "../base/errors.ts";
import { MemoryBudget } from "../base/memory-budget.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const DAY = 24 * 60 * MINUTE;

/** The longest timeout. A call's deadline is cut to it. Node turns a timer of 2^31 ms or more into one of 1 ms. */
export const MAX_TIMEOUT_MS = 24 * DAY;

/** Limits on what clients may ask of the port. */
export interface RpcLimits {
  /** The largest request message in bytes, after decompression. */
  readonly readMaxBytes: number;
  /** Exceptions to {@link readMaxBytes}, by method: `"berth.v1.FileService/WriteFile"`. */
  readonly readMaxBytesByMethod: Readonly<Record<string, number>>;
  /** How much memory requests that have not been answered may hold together, in bytes. */
  readonly maxReceivingBytes: number;
  /**
   * How much memory messages that their clients have not read may take together, in bytes. Beyond it a stream sends the
   * next message only when it has hardly anything unsent, and a longer answer to a call is replaced by an error.
   */
  readonly maxSendingBytes: number;
  /** Open connections. Further ones are closed at once. */
  readonly maxConnections: number;
  /**
   * Concurrent calls on one connection. Over HTTP/2 clients queue more calls. A connection over HTTP/1 with more requests
   * that were not answered is closed.
   */
  readonly maxConcurrentStreams: number;
  /**
   * How long a connection may take from its first byte until its protocol is known, and a new one for its TLS
   * handshake.
   */
  readonly sniffTimeoutMs: number;
  /** How long a request's headers may take over HTTP/1.1. */
  readonly headersTimeoutMs: number;
  /**
   * How long an HTTP/1.1 connection stays open between two requests, and any new one before its first. Longer than
   * clients keep theirs (Go: 90 s, many proxies: 60 s), because a request fails if the server closes the connection
   * while it is on its way.
   */
  readonly keepAliveTimeoutMs: number;
  /**
   * How long the request message of a call may take to arrive, once the call has its turn. Does not apply to streams of
   * requests.
   */
  readonly requestTimeoutMs: number;
  /** How often the server pings a connection to check that the client still lives. */
  readonly pingIntervalMs: number;
  /** How long the answer to a ping may take. */
  readonly pingTimeoutMs: number;
}

export const DEFAULT_LIMITS: RpcLimits = {
  readMaxBytes: 4 * MIB,
  readMaxBytesByMethod: {},
  maxReceivingBytes: 512 * MIB,
  maxSendingBytes: 256 * MIB,
  maxConnections: 4096,
  maxConcurrentStreams: 1000,
  sniffTimeoutMs: 10 * SECOND,
  headersTimeoutMs: 15 * SECOND,
  keepAliveTimeoutMs: 2 * MINUTE,
  requestTimeoutMs: 5 * MINUTE,
  pingIntervalMs: 30 * SECOND,
  pingTimeoutMs: 15 * SECOND,
};

/** The size limit for request messages of `method` ("package.Service/Method"), in bytes. */
export function readMaxBytesOf(limits: RpcLimits, method: string): number {
  return limits.readMaxBytesByMethod[method] ?? limits.readMaxBytes;
}

/** A call takes more than this anyway, so a small message can always end what others hold. */
const UNCOUNTED_BYTES = 4 * KIB;

/**
 * Limits the memory for requests that have not been answered, whether they are still received, run, or wait, and also if
 * their callers have left. Without it, one connection could hold thousands of messages, each within its own limit. No
 * owner can hold all of it.
 */
export class ReceiveBudget {
  readonly #memory: MemoryBudget;

  /** @param uncountedBytes how much of each request does not count. */
  constructor(limitBytes: number, uncountedBytes = UNCOUNTED_BYTES) {
    this.#memory = new MemoryBudget(limitBytes, uncountedBytes);
  }

  /** The bytes currently held. */
  get heldBytes(): number {
    return this.#memory.heldBytes;
  }

  /** Opens an account for one call. The caller must close it. */
  open(owner: string): ReceiveAccount {
    const share = this.#memory.open(owner);
    let isClosed = false;
    let holders = 0;
    const settle = (): void => {
      if (isClosed && holders === 0) share.close();
    };
    return {
      charge: (bytes) => {
        if (!share.take(bytes)) throw exhausted();
      },
      hold: async (work) => {
        holders++;
        try {
          return await work();
        } finally {
          holders--;
          settle();
        }
      },
      close: () => {
        isClosed = true;
        settle();
      },
    };
  }
}

/** One call's part of a {@link ReceiveBudget}. */
export interface ReceiveAccount {
  /** @throws BerthError `TOO_MANY_OPERATIONS` if the budget has no room */
  charge(bytes: number): void;
  /** Runs work that has the call's message and may outlive the call. A close takes effect when it has settled. */
  hold<T>(work: () => Promise<T>): Promise<T>;
  /** Releases everything. Idempotent. */
  close(): void;
}

function exhausted(): BerthError {
  return new BerthError(
    "TOO_MANY_OPERATIONS",
    "The requests of your calls use all the memory that the server has for them. Wait for some to end, or try again in a moment.",
    { retryAfterMs: 1000 },
  );
}
