import { Mutex } from "async-mutex";
import { BerthError } from "../base/errors.ts";

/** A call on a session, from when it came until it is over. */
export interface SessionCall {
  /** Aborted with `SESSION_LOST` when the call has to end now. */
  readonly signal: AbortSignal;
  /** Resolves when it is this call's turn; calls on one session come one after the other, in their order. */
  readonly turn: Promise<void>;
  /** It is over: the next one's turn. Idempotent. */
  end(): void;
}

/** The calls on one session, under way and waiting. While there is one, the session does not expire. */
export class SessionCalls {
  readonly #turns = new Mutex();
  readonly #open = new Set<AbortController>();
  readonly #drained = new Set<() => void>();
  readonly #limit: number;
  readonly #onChange: () => void;

  /** @param onChange called whenever a call begins or ends. */
  constructor(limit: number, onChange: () => void) {
    this.#limit = limit;
    this.#onChange = onChange;
  }

  get count(): number {
    return this.#open.size;
  }

  /** @throws `TOO_MANY_OPERATIONS` where as many wait as may. */
  begin(): SessionCall {
    if (this.#open.size >= this.#limit) {
      throw new BerthError(
        "TOO_MANY_OPERATIONS",
        `The session has ${this.#open.size} calls waiting, as many as it may. Wait for one to end.`,
        { metadata: { limit: String(this.#limit) } },
      );
    }
    const controller = new AbortController();
    this.#open.add(controller);
    this.#onChange();
    const acquired = this.#turns.acquire();
    let over = false;
    return {
      signal: controller.signal,
      turn: acquired.then(() => {}),
      end: () => {
        if (over) return;
        over = true;
        acquired.then((release) => release()).catch(() => {});
        this.#open.delete(controller);
        this.#onChange();
        if (this.#open.size > 0) return;
        for (const resolve of this.#drained) resolve();
        this.#drained.clear();
      },
    };
  }

  /** Tells every call to end now. */
  abortAll(reason: BerthError): void {
    for (const controller of this.#open) controller.abort(reason);
  }

  /** Resolves when there is no call. */
  async drained(): Promise<void> {
    if (this.#open.size === 0) return;
    await new Promise<void>((resolve) => this.#drained.add(resolve));
  }
}
