import type { HealthSource } from "../../../src/server/health.ts";

/** A health source that tests switch on and off. */
export class Switch implements HealthSource {
  readonly listeners = new Set<() => void>();
  #on: boolean;

  constructor(on: boolean) {
    this.#on = on;
  }

  warning(): undefined {}

  isServing(): boolean {
    return this.#on;
  }

  reason(): string {
    return "The engine does not answer.";
  }

  onChange(changed: () => void): () => void {
    this.listeners.add(changed);
    return () => this.listeners.delete(changed);
  }

  set(on: boolean): void {
    this.#on = on;
    for (const changed of this.listeners) changed();
  }
}
