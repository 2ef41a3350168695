/**
 * The places between two writes, or a write and what it is about, where the end
 * of the service hurts most. The crash suite ends it at each of them.
 */
export const FAILPOINTS = [
  /** The intention is kept, and nothing made. */
  "create.intended",
  /** The container exists and has not been started. */
  "create.container",
  /** The sandbox is ready, and not kept as that. */
  "create.made",
  /** It is kept as ready, and nobody has been told. */
  "create.ready",
  /** The same of a warm sandbox that becomes somebody's. */
  "claim.intended",
  "claim.made",
  "claim.ready",
  /** The process is kept, and not started. */
  "exec.intended",
  /** It runs, and that is not kept. */
  "exec.started",
  /** It has ended, and that is not kept. */
  "exec.ended",
  /** A deadline has passed, and nothing has been done about it. */
  "sweep.due",
  /** The end is kept as wanted, and nothing removed. */
  "delete.intended",
  /** The container is gone, and that is not kept. */
  "delete.removed",
  /** The sandbox is kept as ended, and nobody has been told. */
  "delete.finished",
  /** A run is kept, and nobody has been told. */
  "run.created",
  /** The run owns up to a sandbox, and nothing is made. */
  "run.starting",
  /** The sandbox of a run is ready, and the run not RUNNING. */
  "run.made",
  /** The run is kept as RUNNING, and its caller has no step. */
  "run.started",
  /** A step is judged, and that is not kept. */
  "report.judged",
  /** The step is kept, and its caller knows nothing of it. */
  "report.kept",
  /** The end of a run is kept, and nothing cleaned up. */
  "run.ended",
  /** Processes and sandbox are gone, and that is not kept. */
  "run.cleaned",
  /** The work of a request is done, and its answer not kept. */
  "request.done",
  /** The answer is kept, and not given. */
  "request.kept",
] as const;

/** The name of a place. */
export type Failpoint = (typeof FAILPOINTS)[number];

let onReach: ((name: Failpoint) => void) | undefined;

/** Says that a place has been reached. Does nothing in the program as it is shipped: only a test's own main arms it. */
export function failpoint(name: Failpoint): void {
  onReach?.(name);
}

/** Has a test told of every place that is reached. */
export function armFailpoints(reached: (name: Failpoint) => void): void {
  onReach = reached;
}
