/** Events on their way to a caller, who may be slower than what makes them. */
export class EventQueue<T> {
  readonly #limitBytes: number;
  #events: { readonly event: T; readonly bytes: number }[] = [];
  #bytes = 0;
  #end: { readonly error: unknown } | "done" | undefined;
  #wake = () => {};
  #room: PromiseWithResolvers<void> | undefined;

  /** @param limitBytes how far its maker may run ahead. */
  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /** Adds an event; a promise says to wait before more is added. After the end, and where nobody reads any more, it is dropped. */
  push(event: T, bytes = 0): Promise<void> | undefined {
    if (this.#end !== undefined) return undefined;
    this.#events.push({ event, bytes });
    this.#bytes += bytes;
    this.#wake();
    if (this.#bytes <= this.#limitBytes) return undefined;
    this.#room ??= Promise.withResolvers();
    return this.#room.promise;
  }

  /** No more events come. */
  finish(): void {
    this.#stop("done");
  }

  fail(error: unknown): void {
    this.#stop({ error });
  }

  /** The events, in their order; throws what {@link fail} was given after the last. */
  async *events(): AsyncGenerator<T> {
    try {
      for (;;) {
        for (let next = this.#events.shift(); next !== undefined; next = this.#events.shift()) {
          this.#bytes -= next.bytes;
          if (this.#bytes <= this.#limitBytes / 2) this.#makeRoom();
          yield next.event;
        }
        if (this.#end === "done") return;
        if (this.#end !== undefined) throw this.#end.error;
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    } finally {
      this.finish();
    }
  }

  #stop(end: { readonly error: unknown } | "done"): void {
    this.#end ??= end;
    this.#makeRoom();
    this.#wake();
  }

  #makeRoom(): void {
    this.#room?.resolve();
    this.#room = undefined;
  }
}
