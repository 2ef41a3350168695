/**
 * Points between two writes, or between a write and the action that it records, where a crash of the service does the
 * most harm. The crash suite kills the service at each of them.
 */
export const FAILPOINTS = [
  /** The intention is stored, but nothing is created. */
  "create.intended",
  /** The container exists, but has not been started. */
  "create.container",
  /** The sandbox is ready, but not stored as RUNNING. */
  "create.made",
  /** It is stored as RUNNING, but not reported yet. */
  "create.ready",
  /** The same for claims of warm sandboxes. */
  "claim.intended",
  "claim.made",
  "claim.ready",
  /** The process is stored, but not started. */
  "exec.intended",
  /** It runs, but that is not stored. */
  "exec.started",
  /** It has ended, but that is not stored. */
  "exec.ended",
  /** A deadline has passed, but nothing has been done about it. */
  "sweep.due",
  /** The sandbox is stored as DELETING, but nothing is removed. */
  "delete.intended",
  /** The container is gone, but that is not stored. */
  "delete.removed",
  /** The sandbox is stored as TERMINATED, but that is not reported yet. */
  "delete.finished",
  /** A run is stored, but not reported yet. */
  "run.created",
  /** The run names its sandbox, but nothing is created. */
  "run.starting",
  /** The sandbox of a run is ready, but the run is not RUNNING. */
  "run.made",
  /** The run is stored as RUNNING, but its caller has no step. */
  "run.started",
  /** A step is judged, but that is not stored. */
  "report.judged",
  /** The step is stored, but its caller does not know. */
  "report.kept",
  /** The end of a run is stored, but nothing is cleaned up. */
  "run.ended",
  /** Processes and sandbox are gone, but that is not stored. */
  "run.cleaned",
  /** A workspace is stored as FORKING, but nothing is created. */
  "fork.intended",
  /** The copy is complete, but that is not stored. */
  "fork.copied",
  /** The workspace is stored as ACTIVE, but that is not reported yet. */
  "fork.activated",
  /** The work of a request is done, but its answer is not stored. */
  "request.done",
  /** The answer is stored, but not returned. */
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
