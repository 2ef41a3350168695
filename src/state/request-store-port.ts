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
  /** Undefined: it is under way, or was when the service ended; or it was dropped. */
  readonly answer: Uint8Array | undefined;
  /** Whether it was answered and the answer has been dropped since. Default false. */
  readonly dropped?: boolean;
  /** In service time, milliseconds. */
  readonly expiresAt: number;
}

/** What answers may take, in bytes. */
export interface AnswerBounds {
  readonly bytes: number;
  /** Of one owner. */
  readonly ownerBytes: number;
}

/** Keeps requests, also past the end of the service. Writes may throw `NO_SPACE`, and have changed nothing then. */
export interface RequestStore {
  get(name: RequestName): StoredRequest | undefined;
  /** Keeps a request, in place of what was kept of it. */
  put(request: StoredRequest): void;
  remove(name: RequestName): void;
  /** Forgets those that expired before `now`, and the oldest beyond `limit`. */
  trim(now: number, limit: number): void;
  /** Drops the oldest answers beyond the bounds. Their requests stay, so that none is carried out twice. */
  dropAnswers(bounds: AnswerBounds): void;
  /** What the answers take. */
  answerBytes(owner?: string): number;
}
