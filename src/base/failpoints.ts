/**
 * The points between two writes, or between a write and what it records, where
 * a crash of the service hurts most. The crash suite kills it at each of them.
 */
export const FAILPOINTS = [
  /** The intention is stored, and nothing made. */
  "create.intended",
  /** The container exists and has not been started. */
  "create.container",
  /** The sandbox is ready, and not stored as RUNNING. */
  "create.made",
  /** It is stored as RUNNING, and nobody knows yet. */
  "create.ready",
  /** The same for a claim of a warm sandbox. */
  "claim.intended",
  "claim.made",
  "claim.ready",
  /** The process is stored, and not started. */
  "exec.intended",
  /** It runs, and that is not stored. */
  "exec.started",
  /** It has ended, and that is not stored. */
  "exec.ended",
  /** A deadline has passed, and nothing has been done about it. */
  "sweep.due",
  /** The sandbox is stored as DELETING, and nothing removed. */
  "delete.intended",
  /** The container is gone, and that is not stored. */
  "delete.removed",
  /** The sandbox is stored as TERMINATED, and nobody knows yet. */
  "delete.finished",
  /** A run is stored, and nobody knows yet. */
  "run.created",
  /** The run names its sandbox, and nothing is made. */
  "run.starting",
  /** The sandbox of a run is ready, and the run not RUNNING. */
  "run.made",
  /** The run is stored as RUNNING, and its caller has no step. */
  "run.started",
  /** A step is judged, and that is not stored. */
  "report.judged",
  /** The step is stored, and its caller does not know. */
  "report.kept",
  /** The end of a run is stored, and nothing cleaned up. */
  "run.ended",
  /** Processes and sandbox are gone, and that is not stored. */
  "run.cleaned",
  /** A workspace is stored as FORKING, and nothing made. */
  "fork.intended",
  /** The copy is whole, and that is not stored. */
  "fork.copied",
  /** The workspace is stored as ACTIVE, and nobody knows yet. */
  "fork.activated",
  /** The work of a request is done, and its answer not stored. */
  "request.done",
  /** The answer is stored, and not given. */
  "request.kept",
] as const;

/** The name of a failpoint. */
export type Failpoint = (typeof FAILPOINTS)[number];

let onReach: ((name: Failpoint) => void) | undefined;

/** Marks a failpoint as reached. Does nothing in the shipped program: only a test's own main arms it. */
export function failpoint(name: Failpoint): void {
  onReach?.(name);
}

/** Calls `reached` for every failpoint that is reached. */
export function armFailpoints(reached: (name: Failpoint) => void): void {
  onReach = reached;
}
