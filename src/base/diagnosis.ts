/** The result of one check of whether a service can run here. */
export interface Finding {
  /** What was checked, for instance `docker daemon`. */
  readonly subject: string;
  /**
   * `ok`: no problem. `limited`: the service works, but lacks something that some callers want. `missing`: sandboxes
   * cannot be created without it.
   */
  readonly status: "ok" | "limited" | "missing";
  /** What was found, in one line. */
  readonly found: string;
  /** How to fix it: one or more lines of commands. Set if the status is not `ok`. */
  readonly fix?: string;
}

/** A finding that is `ok` if the answer is yes, and otherwise `limited`. */
export function yesOrLimited(
  subject: string,
  yes: boolean,
  found: string,
  otherwise: { readonly found: string; readonly fix: string },
): Finding {
  return yes ? { subject, status: "ok", found } : { subject, status: "limited", ...otherwise };
}
