import type { Database } from "./database.ts";

/** Identifies a request: its owner, its method and the id that its caller gave it. */
export interface RequestName {
  readonly owner: string;
  readonly method: string;
  readonly requestId: string;
}

/** A request as it is stored. */
export interface StoredRequest extends RequestName {
  /** Equal if and only if the parameters of the requests are equal. */
  readonly fingerprint: string;
  /** What it started to create, if it recorded that. */
  readonly subject: string | undefined;
  /** Undefined: the request is in progress, or was when the service ended, or the answer was dropped. */
  readonly answer: Uint8Array | undefined;
  /** Whether the answer has been dropped. Default false. */
  readonly dropped?: boolean;
  /** In service time, in milliseconds. */
  readonly expiresAt: number;
}

/** How many answered requests are kept, at most. */
export interface RequestBounds {
  readonly requests: number;
  /** Limit per owner. */
  readonly ownerRequests: number;
}

/** Limits for the total size of answers, in bytes. */
export interface AnswerBounds {
  readonly bytes: number;
  /** Limit per owner. */
  readonly ownerBytes: number;
}

const PUT = `
  INSERT INTO requests (owner, method, request_id, fingerprint, subject, answer, answer_bytes, expires_at)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (owner, method, request_id) DO UPDATE SET
    fingerprint = excluded.fingerprint, subject = excluded.subject,
    answer = excluded.answer, answer_bytes = excluded.answer_bytes, expires_at = excluded.expires_at`;

/** The size that marks a dropped answer. */
const DROPPED = -1;
/** How many answers to drop, or requests to remove, in one transaction, which blocks everything else. */
const MAX_DROPPED = 1024;
/** Roughly how many bytes of answers to remove or drop in it. */
const MAX_REMOVED_BYTES = 16 * 1024 * 1024;
/** The same for expired requests. More than expire between two calls, so they become fewer. */
const MAX_EXPIRED = 256;

/** The requests in the database. Writes may throw `NO_SPACE`, and then have changed nothing. */
export class RequestStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  get({ owner, method, requestId }: RequestName): StoredRequest | undefined {
    const { seal } = this.#database;
    const row = this.#database
      .prepare(
        "SELECT fingerprint, subject, answer, answer_bytes, expires_at FROM requests WHERE owner = ? AND method = ? AND request_id = ?",
      )
      .get(owner, method, requestId);
    return (
      row && {
        owner,
        method,
        requestId,
        fingerprint: seal.openText(row.fingerprint),
        subject: row.subject === null ? undefined : String(row.subject),
        answer: row.answer instanceof Uint8Array ? seal.open(row.answer) : undefined,
        dropped: row.answer_bytes === DROPPED,
        expiresAt: Number(row.expires_at),
      }
    );
  }

  /** Stores a request, replacing an earlier version of it. */
  put({ owner, method, requestId, fingerprint, subject, answer, expiresAt }: StoredRequest): void {
    const { seal } = this.#database;
    // Seal the fingerprint too: from a hash, a request could be guessed.
    const name = [owner, method, requestId, seal.text(fingerprint)] as const;
    const sealed = answer === undefined ? null : seal.bytes(answer);
    this.#database.transaction(() =>
      this.#database.prepare(PUT).run(...name, subject ?? null, sealed, answer?.length ?? 0, expiresAt),
    );
  }

  remove({ owner, method, requestId }: RequestName): void {
    this.#database.transaction(() =>
      this.#database
        .prepare("DELETE FROM requests WHERE owner = ? AND method = ? AND request_id = ?")
        .run(owner, method, requestId),
    );
  }

  /**
   * Removes requests that expired before `now`, and beyond the limits the oldest of the owner with the most. Leaves some
   * to the next call if there are many, or large ones.
   */
  trim(now: number, { requests, ownerRequests }: RequestBounds): void {
    this.#database.transaction(() => {
      const left = { requests: MAX_DROPPED, bytes: MAX_REMOVED_BYTES };
      this.#remove(this.#expired(now), left);
      while (left.requests > 0 && left.bytes > 0) {
        // SQLite takes the owner from the row with the maximum.
        const row = this.#database
          .prepare("SELECT owner, max(requests) AS most, sum(requests) AS total FROM answer_totals")
          .get();
        const excess = Math.max(Number(row?.total) - requests, Number(row?.most) - ownerRequests);
        if (excess <= 0) return;
        this.#remove(this.#oldest(String(row?.owner), Math.min(excess, left.requests)), left);
      }
    });
  }

  #expired(now: number): Iterable<Record<string, unknown>> {
    return this.#database
      .prepare("SELECT place, answer_bytes FROM requests WHERE expires_at <= ? ORDER BY expires_at LIMIT ?")
      .iterate(now, MAX_EXPIRED);
  }

  #oldest(owner: string, count: number): Iterable<Record<string, unknown>> {
    return this.#database
      .prepare(
        "SELECT place, answer_bytes FROM requests WHERE owner = ? AND answer_bytes <> 0 ORDER BY place LIMIT ?",
      )
      .iterate(owner, count);
  }

  /** Removes requests as far as `left` allows, and takes them from it. */
  #remove(rows: Iterable<Record<string, unknown>>, left: { requests: number; bytes: number }): void {
    const { places, bytes } = first(rows, left.bytes);
    const remove = this.#database.prepare("DELETE FROM requests WHERE place = ?");
    for (const place of places) remove.run(place);
    left.requests -= places.length;
    left.bytes -= bytes;
  }

  /**
   * Drops the oldest answers beyond the limits. Their requests stay, so that none is carried out twice. Returns whether
   * it has left some to the next call, because they are many or large.
   */
  dropAnswers({ bytes, ownerBytes }: AnswerBounds): boolean {
    return this.#database.transaction(() => {
      const totals = this.#database
        .prepare("SELECT owner, bytes FROM answer_totals ORDER BY bytes DESC")
        .all();
      let excess = this.answerBytes() - bytes;
      for (const total of totals) {
        // Drop answers of the owner with the most first.
        const held = Number(total.bytes);
        const over = Math.max(excess, held - ownerBytes);
        if (over <= 0) return false;
        const dropped = this.#dropOldest(String(total.owner), Math.min(over, MAX_REMOVED_BYTES));
        if (dropped < over) return dropped > 0;
        excess -= dropped;
      }
      return false;
    });
  }

  /** Size of the answers. @param owner undefined: of all owners. */
  answerBytes(owner?: string): number {
    const row =
      owner === undefined
        ? this.#database.prepare("SELECT sum(bytes) AS bytes FROM answer_totals").get()
        : this.#database.prepare("SELECT bytes FROM answer_totals WHERE owner = ?").get(owner);
    return Number(row?.bytes ?? 0);
  }

  /** Drops the oldest answers of an owner, until they have `bytes` together. Returns how many bytes were dropped. */
  #dropOldest(owner: string, bytes: number): number {
    const oldest = this.#database
      .prepare(
        "SELECT place, answer_bytes FROM requests WHERE owner = ? AND answer_bytes > 0 ORDER BY place LIMIT ?",
      )
      .iterate(owner, MAX_DROPPED);
    const { places, bytes: dropped } = first(oldest, bytes);
    const drop = this.#database.prepare(
      "UPDATE requests SET answer = NULL, answer_bytes = ? WHERE place = ?",
    );
    for (const place of places) drop.run(DROPPED, place);
    return dropped;
  }
}

/** The first requests of a query, until their answers have `bytes` together. */
function first(
  rows: Iterable<Record<string, unknown>>,
  bytes: number,
): { readonly places: readonly number[]; readonly bytes: number } {
  const places: number[] = [];
  let sum = 0;
  for (const { place, answer_bytes } of rows) {
    places.push(Number(place));
    sum += Math.max(0, Number(answer_bytes));
    if (sum >= bytes) break;
  }
  return { places, bytes: sum };
}
