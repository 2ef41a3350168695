import type { BerthError } from "../base/errors.ts";
import type { Call, CallStatus } from "./call.ts";

/** Told of every RPC that begins and ends; must not throw. */
export interface CallObserver {
  started(call: Call): void;
  ended(call: Call, status: CallStatus): void;
}

/** The calls that are running. */
export class Calls {
  readonly #running = new Set<Call>();
  readonly #observers: readonly CallObserver[];
  #refusal: BerthError | undefined;
  #idle: PromiseWithResolvers<void> | undefined;

  constructor(observers: readonly CallObserver[]) {
    this.#observers = observers;
  }

  get size(): number {
    return this.#running.size;
  }

  begin(call: Call): void {
    this.#running.add(call);
    for (const observer of this.#observers) observer.started(call);
    if (this.#refusal) call.abort(this.#refusal);
  }

  end(call: Call, status: CallStatus): void {
    if (!this.#running.delete(call)) return;
    for (const observer of this.#observers) observer.ended(call, status);
    if (this.#running.size === 0) {
      this.#idle?.resolve();
      this.#idle = undefined;
    }
  }

  /** Resolves once no call is running. */
  async whenIdle(): Promise<void> {
    if (this.#running.size === 0) return;
    this.#idle ??= Promise.withResolvers();
    await this.#idle.promise;
  }

  /** From now on, ends calls as they come. */
  refuse(reason: BerthError): void {
    this.#refusal = reason;
  }

  /** Ends the running calls that `which` picks. */
  abort(reason: BerthError, which: (call: Call) => boolean = () => true): void {
    for (const call of [...this.#running]) if (which(call)) call.abort(reason);
  }
}
