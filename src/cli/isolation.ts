import type { IsolationLevel } from "../core/sandbox.ts";
import { formatWord } from "./format.ts";

const MEANINGS: Readonly<Record<IsolationLevel, string>> = {
  NAMESPACE: "namespaces of one user, for your own code",
  CONTAINER: "shared kernel, for semi-trusted code",
  USER_KERNEL: "a kernel of its own in user space, for untrusted code",
  VIRTUAL_MACHINE: "a virtual machine, for untrusted code",
};

/** Says a level and what it is good for: `container (shared kernel, for semi-trusted code)`. */
export function describeIsolation(level: IsolationLevel): string {
  return `${formatWord(level)} (${MEANINGS[level]})`;
}
