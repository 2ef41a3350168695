import type { IsolationLevel } from "./port.ts";

const MEANINGS: Readonly<Record<IsolationLevel, string>> = {
  NAMESPACE: "namespace (one user's processes on a shared kernel, for your own code)",
  CONTAINER: "container (shared kernel, for semi-trusted code)",
  USER_KERNEL: "user-kernel (a kernel of its own in user space, for untrusted code)",
  VIRTUAL_MACHINE: "virtual-machine (a machine of its own, for untrusted code)",
};

/** Says a level and what it is good for, in one line. */
export function describeIsolation(level: IsolationLevel): string {
  return MEANINGS[level];
}
