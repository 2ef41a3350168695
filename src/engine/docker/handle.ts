import path from "node:path";
import type { PipeNames, PipePaths } from "./pipe-names.ts";

/** What a process's handle says. */
export interface Handle {
  /** Docker's id of its `exec`. */
  readonly exec: string;
  /** In its container's directory; undefined where its streams go through the daemon. */
  readonly pipes: PipeNames | undefined;
}

/** Names a process to a later run of the service. */
export function handleOf(exec: string, pipes?: PipePaths): string {
  const names = pipes === undefined ? [] : [pipes.stdin, pipes.stdout, pipes.stderr];
  return [exec, ...names.map((pipe) => path.basename(pipe))].join(" ");
}

export function parseHandle(handle: string): Handle {
  const [exec = "", stdin, stdout, stderr] = handle.split(" ");
  const pipes = stdin && stdout && stderr ? ([stdin, stdout, stderr] as const) : undefined;
  return { exec, pipes };
}
