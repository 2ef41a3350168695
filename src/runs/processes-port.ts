/** What runs in sandboxes on behalf of runs. */
export interface RunProcesses {
  /** Ends every process that was started for a run, with its whole tree; resolves when they have ended. A sandbox that is paused goes on for that. Never rejects. */
  endRun(owner: string, runId: string): Promise<void>;
}
