import { BerthError } from "../../base/errors.ts";
import { codeOf, tooManyFiles } from "../../base/system-errors.ts";

const SHORTAGES = new Set(["EAGAIN", "ENOMEM", "ENFILE"]);

/**
 * The error of what failed for a lack of files, processes or memory, which may be over soon. Undefined: it failed for
 * another reason.
 */
export function noRoom(error: unknown): BerthError | undefined {
  const code = codeOf(error) ?? "";
  if (!SHORTAGES.has(code)) return tooManyFiles(error);
  return new BerthError(
    "TOO_MANY_OPERATIONS",
    `The service's machine has no room for more now (${code}). Try again, or raise the service's limits of processes and open files.`,
    { cause: error, retryAfterMs: 1000 },
  );
}

/** Converts any failure of the engine to an error of the port. `doing` completes "failed while …". */
export function translateError(error: unknown, doing: string): BerthError {
  if (error instanceof BerthError) return error;
  if (error instanceof BwrapProblem) {
    return new BerthError("ENGINE_UNAVAILABLE", `Bubblewrap cannot run here: ${error.message}.`, {
      cause: error,
    });
  }
  const known = noRoom(error);
  if (known !== undefined) return known;
  const { code } = (error ?? {}) as NodeJS.ErrnoException;
  switch (code) {
    case "E2BIG":
      return new BerthError("INVALID_ARGUMENT", "argv: the arguments are longer than the kernel accepts.", {
        metadata: { field: "argv", exit_code: "126" },
        cause: error,
      });
    case "ENOSPC":
      return new BerthError(
        "NO_SPACE",
        "The disk of the service's machine is full. Free space and try again.",
        {
          cause: error,
        },
      );
    default:
      return new BerthError(
        "ENGINE_UNAVAILABLE",
        `Bubblewrap failed while ${doing}. The service's log has the details.`,
        {
          cause: error,
          retryAfterMs: 1000,
        },
      );
  }
}

/** The error of a call whose sandbox is gone or has ended. */
export function terminated(): BerthError {
  return new BerthError("SANDBOX_TERMINATED", "The sandbox is gone or no longer runs.");
}

/** The error for a sandbox that fails to start. `report` is what bwrap or its shell printed. */
export function startFailed(problem: string, report: string): BerthError {
  const details = report.trim() === "" ? "." : `: ${report.trim().slice(0, 500)}`;
  return new BerthError("SANDBOX_START_FAILED", `The sandbox did not start: ${problem}${details}`);
}

/** A problem with this machine's bubblewrap, for `berth doctor` and the start of the service. */
export class BwrapProblem extends Error {
  override readonly name = "BwrapProblem";
  /** Commands that fix it. */
  readonly fix: string;

  constructor(found: string, fix: string, cause?: unknown) {
    super(found, { cause });
    this.fix = fix;
  }
}

export const INSTALL = "sudo apt-get update && sudo apt-get install -y bubblewrap";
