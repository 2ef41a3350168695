import { BerthError } from "../base/errors.ts";

const MAX_VIEWS = 8;

/** A view of a session, from its start to its end. */
export interface OpenView extends Disposable {
  /** Aborted with `SESSION_LOST` when there is nothing left to see. */
  readonly signal: AbortSignal;
}

/** The views of one session. The session does not expire while there are any. */
export class SessionViews {
  readonly #open = new Set<AbortController>();
  readonly #onChange: () => void;

  /** @param onChange called whenever a view starts or ends. */
  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  get count(): number {
    return this.#open.size;
  }

  /** Opens a view. Dispose of it when the viewer ends. @throws `TOO_MANY_OPERATIONS` at the limit. */
  begin(): OpenView {
    if (this.#open.size >= MAX_VIEWS) {
      throw new BerthError(
        "TOO_MANY_OPERATIONS",
        `The session has reached its limit of ${MAX_VIEWS} views. Close one of them.`,
        { metadata: { limit: String(MAX_VIEWS) } },
      );
    }
    const controller = new AbortController();
    this.#open.add(controller);
    this.#onChange();
    return {
      signal: controller.signal,
      [Symbol.dispose]: () => {
        if (this.#open.delete(controller)) this.#onChange();
      },
    };
  }

  abortAll(reason: BerthError): void {
    for (const controller of this.#open) controller.abort(reason);
  }
}
