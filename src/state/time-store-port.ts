/** A moment by every clock there is. All in milliseconds. */
export interface TimeAnchor {
  readonly serviceMs: number;
  readonly monotonicMs: number;
  /** Which run of the machine `monotonicMs` counts in. */
  readonly bootId: string;
  readonly wallMs: number;
}

/** Keeps the last moment that the service saw. */
export interface TimeStore {
  load(): TimeAnchor | undefined;
  save(anchor: TimeAnchor): void;
}
