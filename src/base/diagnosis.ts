/** One thing that was looked at to see whether a service can work here. */
export interface Finding {
  /** What was looked at, as `docker daemon`. */
  readonly subject: string;
  /**
   * `ok`: as it should be. `limited`: the service works, and lacks something
   * that some callers want. `missing`: sandboxes cannot be made without it.
   */
  readonly status: "ok" | "limited" | "missing";
  /** What was found, in one line. */
  readonly found: string;
  /** What mends it: a command, or several lines of them. Set where the status is not `ok`. */
  readonly mend?: string;
}
