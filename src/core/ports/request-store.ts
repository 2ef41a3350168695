/** Whose request it is, what it calls and the id its caller gave it. */
export interface RequestName {
  readonly owner: string;
  readonly method: string;
  readonly requestId: string;
}

/** A request as it is kept. */
export interface StoredRequest extends RequestName {
  /** Equal exactly for requests with the same parameters. */
  readonly fingerprint: string;
  /** What it began to make, where it said so. */
  readonly subject: string | undefined;
  /** Undefined: it is under way, or was when the service ended. */
  readonly answer: Uint8Array | undefined;
  /** In service time, milliseconds. */
  readonly expiresAt: number;
}

/** Keeps requests, also past the end of the service. Writes may throw `NO_SPACE`, and have changed nothing then. */
export interface RequestStore {
  get(name: RequestName): StoredRequest | undefined;
  /** Keeps a request, in place of what was kept of it. */
  put(request: StoredRequest): void;
  remove(name: RequestName): void;
  /** Forgets those that expired before `now`, and the oldest beyond `limit`. */
  trim(now: number, limit: number): void;
}
