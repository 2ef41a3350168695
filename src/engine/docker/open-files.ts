import { readFile } from "node:fs/promises";

const PID_FILE = "/var/run/docker.pid";

/**
 * Hard limit of open files of the Docker daemon on this machine, which its
 * containers cannot go beyond. Undefined where it cannot be read.
 */
export async function daemonOpenFilesLimit(): Promise<number | undefined> {
  try {
    const pid = Number(await readFile(PID_FILE, "utf8"));
    const limits = await readFile(`/proc/${pid}/limits`, "utf8");
    const hard = /^Max open files\s+\S+\s+(\d+)/m.exec(limits)?.[1];
    return hard === undefined ? undefined : Number(hard);
  } catch {
    return undefined;
  }
}
