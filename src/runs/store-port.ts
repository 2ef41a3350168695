import type { Run, RunEvent, RunHappening, RunMessage, RunState, RunStep } from "./run.ts";

/** What is written of a run at once: all of it or nothing. */
export interface RunChange {
  readonly run: Run;
  /** What happened, in order; each becomes an event. */
  readonly happened: readonly RunHappening[];
  readonly timeMs: number;
  /** Steps to forget before one is added. Default false. */
  readonly clearSteps?: boolean;
  readonly addStep?: RunStep;
  /** Messages to forget before any are added. Default false. */
  readonly clearMessages?: boolean;
  readonly addMessages?: readonly RunMessage[];
}

/** Which runs a list is to show. */
export interface RunQuery {
  readonly owner: string;
  /** Empty: every one. */
  readonly states: ReadonlySet<RunState>;
  readonly limit: number;
  /** Only runs created before the one at this position. Undefined: from the newest on. */
  readonly before: number | undefined;
}

/** A run in a list. */
export interface ListedRun {
  readonly run: Run;
  /** Its place among all runs, in the order they were created. Never used twice. */
  readonly position: number;
  readonly messageCount: number;
}

/** Where runs outlive the service. Every method is done when it returns. */
export interface RunStore {
  /**
   * Adds a new run. Of its owner's runs that are not RUNNING and have nothing
   * to be cleaned up, only the newest `keep` stay.
   */
  add(change: RunChange, keep: number): void;
  get(owner: string, runId: string): Run | undefined;
  /** Writes a change of a run that is there. */
  save(change: RunChange): void;
  /** Removes a run and all that belongs to it. */
  remove(runId: string): void;
  /** Newest first. */
  list(query: RunQuery): ListedRun[];
  /** Runs of every owner that are RUNNING, or whose sandbox is still to be cleaned up. */
  unsettled(): Run[];
  steps(runId: string): RunStep[];
  /** The newest 100 messages, in their order. */
  messages(runId: string): RunMessage[];
  messageCount(runId: string): number;
  /** Events after a sequence, in order. The newest 1,000 of a run are kept. */
  events(runId: string, afterSequence: number, limit: number): RunEvent[];
  /** Sequence of the newest event; 0 without one. */
  newestEvent(runId: string): number;
}
