import path from "node:path";

/** Names of the three pipes of a process, in its container's directory. Each is random: none tells another. */
export type PipeNames = readonly [stdin: string, stdout: string, stderr: string];

/** The paths of the named pipes of one process. */
export interface PipePaths {
  readonly stdin: string;
  readonly stdout: string;
  readonly stderr: string;
}

export function pathsIn(directory: string, [stdin, stdout, stderr]: PipeNames): PipePaths {
  const pathOf = (name: string): string => path.join(directory, name);
  return { stdin: pathOf(stdin), stdout: pathOf(stdout), stderr: pathOf(stderr) };
}
