import { createHash } from "node:crypto";
import { ErrorReason } from "../gen/ts/berth/v1/error_pb.js";

/** The columns of the table. */
export const CELLS = ["unary", "stream", "reason", "deadline", "cancel", "12 MB", "100 in parallel"] as const;
export type Cell = (typeof CELLS)[number];

/** What a client program is asked for in a cell. Two cells are the same call with another command. */
export const CALLS: Readonly<Record<Cell, string>> = {
  unary: "unary",
  stream: "stream",
  reason: "reason",
  deadline: "deadline",
  cancel: "cancel",
  "12 MB": "stream",
  "100 in parallel": "parallel",
};

/** How many calls `100 in parallel` makes. */
export const PARALLEL = 100;

export const LARGE_BYTES = 12 * 1024 * 1024;
export const LARGE_FILE = "/tmp/interop-12-mb";

/** What a client got. Codes are those of gRPC, as numbers. */
export interface Result {
  readonly stdout?: string;
  readonly exitCode?: number;
  readonly bytes?: number;
  readonly sha256?: string;
  readonly code?: number;
  readonly reason?: number;
  readonly metadata?: Readonly<Record<string, string>>;
  /** What each call of `100 in parallel` wrote. */
  readonly outputs?: readonly string[];
  /** What a client that shows no answers counted, by the name of the status. */
  readonly statuses?: Readonly<Record<string, number>>;
}

/** One cell of one client: what it is asked, and what must come of it. */
export interface Task {
  readonly cell: Cell;
  /** A shell command, or for `reason` the id of a sandbox that does not exist. */
  readonly argument: string;
  /** Each field must be in the result. `code` is left out where the client may not report any. */
  readonly expected: Result;
  /** The same for a client that only counts statuses. */
  readonly statuses: Readonly<Record<string, number>>;
  /** The command line of a process that must not outlive the call. */
  readonly mustEnd?: string;
}

const STREAM = Array.from({ length: 20_000 }, (_, index) => `${index + 1}\n`).join("");

/** Makes the task of a cell; `unique` distinguishes it from those of other clients. */
export function taskOf(cell: Cell, unique: number, large: string): Task {
  const nap = `sleep 36${String(unique).padStart(4, "0")}`;
  switch (cell) {
    case "unary":
      return {
        cell,
        argument: `echo ${unique}; exit 3`,
        expected: { stdout: `${unique}\n`, exitCode: 3 },
        statuses: { OK: 1 },
      };
    case "stream":
      return {
        cell,
        argument: "seq 20000; exit 4",
        expected: { bytes: STREAM.length, sha256: sha256(STREAM), exitCode: 4 },
        statuses: { OK: 1 },
      };
    case "reason": {
      const id = `interop-nobody-${unique}`;
      const reason = ErrorReason.SANDBOX_NOT_FOUND;
      return {
        cell,
        argument: id,
        expected: { code: 5, reason, metadata: { sandbox_id: id } },
        statuses: { NotFound: 1 },
      };
    }
    case "deadline":
      return {
        cell,
        argument: `echo waiting; ${nap}`,
        expected: { code: 4 },
        statuses: { DeadlineExceeded: 1 },
        mustEnd: nap,
      };
    case "cancel":
      return {
        cell,
        argument: `echo started; ${nap}`,
        expected: {},
        statuses: { Canceled: 1 },
        mustEnd: nap,
      };
    case "12 MB":
      return {
        cell,
        argument: `cat ${LARGE_FILE}`,
        expected: { bytes: LARGE_BYTES, sha256: large, exitCode: 0 },
        statuses: { OK: 1 },
      };
    case "100 in parallel":
      return {
        cell,
        argument: "echo",
        expected: { outputs: Array.from({ length: PARALLEL }, (_, index) => `${index}\n`) },
        statuses: { OK: PARALLEL },
      };
  }
}

/** What is wrong with a result; undefined: nothing. */
export function problemOf({ cell, expected, statuses }: Task, result: Result): string | undefined {
  const { code } = result;
  if (cell === "cancel" && code !== undefined && code !== 1) return `ended with code ${code}, not 1`;
  const wanted = result.statuses === undefined ? expected : { statuses };
  for (const [field, value] of Object.entries(wanted)) {
    const got = JSON.stringify(result[field as keyof Result]);
    if (got !== JSON.stringify(value))
      return `${field} is ${got?.slice(0, 200)}, not ${JSON.stringify(value).slice(0, 200)}`;
  }
  return undefined;
}

export function sha256(data: string | Uint8Array): string {
  return createHash("sha256").update(data).digest("hex");
}
