import { randomBase32 } from "../../base/ids.ts";

/** A name for what a service makes on its machine, by which the next one knows whether its maker is gone. */
export function ownName(): string {
  return `berth-${process.pid}-${randomBase32(8)}`;
}

/** Whether a name was made by {@link ownName} in a process that is no more. */
export function isLeftover(name: string): boolean {
  const pid = /^berth-(\d+)-[a-z0-9]{8}(-service)?$/.exec(name)?.[1];
  return pid !== undefined && !isAlive(Number(pid));
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
