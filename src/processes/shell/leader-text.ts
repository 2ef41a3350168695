import type { LeaderId } from "./job.ts";

/** How a shell tells its own pid, and its start time where it does: `<pid>:<start time>`. */
export function parseLeader(text: string): LeaderId {
  const [pid, startTime = ""] = text.split(":");
  return { pid: Number(pid), startTime };
}
