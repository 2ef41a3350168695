/** A process as it is kept. */
export interface StoredProcess {
  readonly processId: string;
  /** In service time, milliseconds; undefined: it runs, as far as is known. */
  readonly endedAt: number | undefined;
  /** What it is and how it ended, as text of the process layer's. */
  readonly facts: string;
  /** Where what it wrote is, as bytes of the process layer's. */
  readonly transcript: Uint8Array;
}

/** Keeps processes, also past the end of the service. Writes may throw `NO_SPACE`, and have changed nothing then. */
export interface ProcessStore {
  /** All, oldest first. */
  load(): StoredProcess[];
  put(process: StoredProcess): void;
  remove(processId: string): void;
}
