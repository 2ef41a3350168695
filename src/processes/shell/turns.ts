/** Lets so much happen at once; the rest waits, first come, first served. */
export class Turns {
  readonly #waiting = new Set<() => Promise<void>>();
  #free: number;

  constructor(atOnce: number) {
    this.#free = atOnce;
  }

  /**
   * Runs `act` when its turn has come, which ends when `act` settles.
   * @param act never rejects.
   * @returns how to give the turn up that has not come yet.
   */
  take(act: () => Promise<void>): () => void {
    // Its own even where the same function waits twice.
    const turn = (): Promise<void> => act();
    this.#waiting.add(turn);
    this.#next();
    return () => this.#waiting.delete(turn);
  }

  #next(): void {
    for (const turn of this.#waiting) {
      if (this.#free === 0) return;
      this.#free--;
      this.#waiting.delete(turn);
      void turn().finally(() => {
        this.#free++;
        this.#next();
      });
    }
  }
}
