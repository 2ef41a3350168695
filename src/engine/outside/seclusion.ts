import type { ProcessName, Seclusion } from "../port.ts";
import {
  descriptorsOf,
  holdsAny,
  idsOf,
  type ProcessScope,
  readProcess,
  readText,
  scanTurns,
  startTimeOf,
  statOf,
} from "./host-process.ts";

/** A shell's stdin, and the descriptors in which it holds the pipes of its job. */
const PIPE_FDS = ["0", "3", "4"];

/** Indexes in the fields of {@link statOf}. */
const START_TIME = 19;
const START_CODE = 23;
const START_STACK = 25;

/** A {@link Seclusion}, with facts that the next check can reuse. */
interface Look extends Seclusion {
  readonly hostPid: number;
  readonly pipes: readonly string[];
  /** The sandbox's processes at the time of this check. */
  readonly pids: ReadonlySet<number>;
}

/**
 * Checks whether a shell is alone: it is neither stopped nor traced, it has no child, and no other process is in its
 * session or holds its pipes. Processes that the previous check saw are skipped, so the cost is small however many
 * there are.
 */
export async function lookForSeclusion(
  scope: ProcessScope,
  level: number,
  shell: ProcessName,
  before: Seclusion | undefined,
): Promise<Seclusion | undefined> {
  const known = before as Look | undefined;
  const pids = await scope.pids();
  const hostPid = known?.hostPid ?? (await findShell(pids, level, shell));
  if (hostPid === undefined) return undefined;
  const stat = statOf(hostPid);
  if (stat === undefined || stat[START_TIME] !== shell.startTime || !isFree(hostPid)) return undefined;
  const pipes = descriptorsOf(hostPid, PIPE_FDS);
  if (known !== undefined && pipes.join() !== known.pipes.join()) return undefined;
  for (const pid of pids) {
    if (pid === hostPid || known?.pids.has(pid)) continue;
    const turn = scanTurns.enter();
    if (turn) await turn;
    if (readProcess(pid)?.session === hostPid) return undefined;
    if (await holdsAny(pid, pipes)) return undefined;
  }
  const look: Look = {
    program: `${stat[START_CODE]} ${stat[START_STACK]}`,
    hostPid,
    pipes,
    pids: new Set(pids),
  };
  return look;
}

async function findShell(
  pids: readonly number[],
  level: number,
  { pid, startTime }: ProcessName,
): Promise<number | undefined> {
  for (const candidate of pids) {
    const turn = scanTurns.enter();
    if (turn) await turn;
    if (startTimeOf(candidate) === startTime && idsOf(candidate, "NSpid")[level] === pid) return candidate;
  }
  return undefined;
}

/** Whether a process runs or sleeps, and has a single thread, no tracer and no child. */
function isFree(pid: number): boolean {
  const status = readText(`/proc/${pid}/status`) ?? "";
  if (!/^State:\s+[RSD]/m.test(status) || !/^TracerPid:\s+0$/m.test(status)) return false;
  return /^Threads:\s+1$/m.test(status) && readText(`/proc/${pid}/task/${pid}/children`) === "";
}
