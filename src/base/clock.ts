/** Releases a timer; calling it again does nothing. */
export type CancelTimer = () => void;

/**
 * Time, injected so that tests can turn it. Deadlines are measured on
 * {@link monotonicMs}, which a change of the wall clock does not move; wall
 * time is only shown and persisted.
 */
export interface Clock {
  /** Which run of the machine {@link monotonicMs} counts in: the moments of one run can be compared, also those of other processes. */
  readonly bootId: string;
  /** Milliseconds since some fixed point of the machine's run, never going back. */
  monotonicMs(): number;
  /** Wall time in milliseconds since the Unix epoch. */
  wallMs(): number;
  /** Calls `callback` once, `delayMs` from now. Does not keep the program alive. */
  setTimer(delayMs: number, callback: () => void): CancelTimer;
}
