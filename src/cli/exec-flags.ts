import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Command } from "commander";
import type { ExecRequestSchema } from "../../gen/ts/berth/v1/process_pb.js";
import { UsageError } from "./exit.ts";
import { collect, keyValues } from "./flag-values.ts";

/** What the command line says of how a command is to run in a sandbox. */
export interface ExecFlags {
  readonly env?: readonly string[];
  readonly workdir?: string;
  readonly user?: string;
}

/** Adds the flags of every command that runs one in a sandbox that is there. */
export function addExecFlags(command: Command): Command {
  return command
    .option("-e, --env <KEY=VALUE>", "environment variable, may be repeated", collect)
    .option("-w, --workdir <dir>", "directory to start in (default: the sandbox's)")
    .option("-u, --user <user>", "user to run as: a name or uid[:gid] (default: the sandbox's)");
}

/** The part of a request that the flags make. */
export function execRequestOf(sandboxId: string, flags: ExecFlags) {
  return {
    sandboxId,
    env: keyValues("--env", flags.env),
    workingDir: flags.workdir,
    user: flags.user,
  } satisfies MessageInitShape<typeof ExecRequestSchema>;
}

/**
 * What follows the sandbox's id: the command, with or without `--` before it.
 * Empty where there is none.
 * @throws UsageError for a flag in that place
 */
export function argvOf(name: string, words: readonly string[]): string[] {
  const [first, ...rest] = words;
  if (first === "--") return rest;
  if (first?.startsWith("-")) {
    throw new UsageError(
      `the option ${first} goes before the sandbox's id; write: berth ${name} ${first} SANDBOX -- COMMAND`,
    );
  }
  return [...words];
}
