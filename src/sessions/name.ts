import { randomBytes } from "node:crypto";
import { compositeKey } from "../base/ids.ts";

const LAST_NUMBER = 999;

/** What a session is called. */
export interface SessionNames {
  /** `{type}_{worker}_{NNN}`, and `_{custom}` where there is one. */
  readonly name: string;
  /** The name, `_` and 8 hexadecimal digits. */
  readonly sessionId: string;
}

/** Names sessions. Names and ids are shown and compared, and never a path. */
export class SessionNamer {
  /** How many sessions of a type each worker has had, since the service began. */
  readonly #counts = new Map<string, number>();

  readonly #limit: number;

  /** @param limit how many workers' counts are kept; the oldest begin anew. */
  constructor(limit = 10_000) {
    this.#limit = limit;
  }

  next(owner: string, workerId: string, type: string, customName: string): SessionNames {
    const key = compositeKey(owner, workerId, type);
    const number = ((this.#counts.get(key) ?? 0) % LAST_NUMBER) + 1;
    this.#counts.delete(key);
    this.#counts.set(key, number);
    if (this.#counts.size > this.#limit) {
      const oldest = this.#counts.keys().next();
      if (!oldest.done) this.#counts.delete(oldest.value);
    }
    const parts = [type, workerId, String(number).padStart(3, "0"), ...(customName ? [customName] : [])];
    const name = parts.join("_");
    return { name, sessionId: `${name}_${randomBytes(4).toString("hex")}` };
  }
}
