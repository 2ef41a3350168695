import { closeSync, openSync } from "node:fs";
import { codeOf } from "./system-errors.ts";

/** More than the threads of Node's pool, which may open files at the same moment. */
const COUNT = 8;

const spare: number[] = [];

/**
 * Runs an action that opens one file at a time, also if the service may open no more files: it then gives back
 * descriptors that it has kept for that. For files of the kernel, where a failure would look as if a process were gone.
 * @param act synchronous and short; runs a second time if it has failed for lack of a descriptor.
 */
export function withSpareDescriptors<T>(act: () => T): T {
  keepSpare();
  try {
    return act();
  } catch (error) {
    if (!/^E[MN]FILE$/.test(codeOf(error) ?? "")) throw error;
    for (const fd of spare.splice(0)) closeSync(fd);
    try {
      return act();
    } finally {
      keepSpare();
    }
  }
}

function keepSpare(): void {
  try {
    while (spare.length < COUNT) spare.push(openSync("/", "r"));
  } catch {
    // The next call tries again.
  }
}
