/** One thing that was checked to see whether a service can run here. */
export interface Finding {
  /** What was checked, as `docker daemon`. */
  readonly subject: string;
  /**
   * `ok`: as it should be. `limited`: the service works, but lacks something
   * that some callers want. `missing`: sandboxes cannot be made without it.
   */
  readonly status: "ok" | "limited" | "missing";
  /** What was found, in one line. */
  readonly found: string;
  /** What fixes it: one or more lines of commands. Set where the status is not `ok`. */
  readonly fix?: string;
}
