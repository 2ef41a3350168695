const CARRIAGE_RETURN = 0x0d;
const LINE_FEED = 0x0a;
const TILDE = 0x7e;
const DOT = 0x2e;

/** What {@link EscapeFilter} makes of keys. */
export interface Filtered {
  /** What goes on. */
  readonly keys: Buffer;
  /** Whether `~.` was typed; what follows it is dropped. */
  readonly leave: boolean;
}

/**
 * Finds `~.` at the beginning of a line, the way out of a session that does not
 * answer, as in ssh. `~~` there is one tilde; before anything else it stays.
 */
export class EscapeFilter {
  #at: "line-start" | "tilde" | "line" = "line-start";

  /** Takes keys as they are typed. A tilde that may begin an escape is held back until the next key. */
  push(typed: Uint8Array): Filtered {
    const keys: number[] = [];
    for (const key of typed) {
      if (this.#at === "tilde") {
        if (key === DOT) return { keys: Buffer.from(keys), leave: true };
        keys.push(TILDE);
        this.#at = "line";
        if (key === TILDE) continue;
      } else if (this.#at === "line-start" && key === TILDE) {
        this.#at = "tilde";
        continue;
      }
      keys.push(key);
      this.#at = key === CARRIAGE_RETURN || key === LINE_FEED ? "line-start" : "line";
    }
    return { keys: Buffer.from(keys), leave: false };
  }
}
