import type { EngineInfo } from "../../core/ports/engine.ts";
import { systemArguments } from "./arguments.ts";
import { type BwrapProgram, findBwrap } from "./bwrap-program.ts";
import type { ControlGroups } from "./control-group.ts";
import { findControlGroups } from "./find-control-groups.ts";
import { type Identity, sandboxIdentity } from "./identity.ts";
import { describeEngine } from "./info.ts";
import { Janitor } from "./janitor.ts";
import { ownName } from "./leftovers.ts";
import { Pipes } from "./pipes.ts";
import { createRuntimeDir } from "./runtime-dir.ts";
import { trySandbox } from "./trial.ts";

/** All that the sandboxes of a running engine share. */
export interface BubblewrapSetup {
  readonly program: BwrapProgram;
  readonly info: EngineInfo;
  readonly identity: Identity;
  readonly groups: ControlGroups;
  readonly pipes: Pipes;
  /** Arguments of bwrap that show the system. */
  readonly system: readonly string[];
  readonly etc: string;
  /** As in {@link RuntimeDir}. */
  readonly stage: string;
  /** Removes every trace, when no sandbox is left. */
  close(): Promise<void>;
}

/**
 * Looks whether sandboxes can be made here, by making one, and prepares it.
 * @throws BwrapProblem that says what is missing and what mends it.
 */
export async function openSetup(rootfs: string): Promise<BubblewrapSetup> {
  const program = await findBwrap();
  const identity = sandboxIdentity();
  const system = systemArguments(rootfs);
  await trySandbox(identity, system);
  const name = ownName();
  const groups = await findControlGroups(name);
  const runtime = await createRuntimeDir(name, rootfs);
  const janitor = new Janitor(runtime.path, groups.homes);
  const pipes = new Pipes(identity);
  try {
    await pipes.prepare();
  } catch (error) {
    await janitor.finish();
    throw error;
  }
  return {
    ...{ program, identity, groups, pipes, system, etc: runtime.etc, stage: runtime.stage },
    info: describeEngine(program, groups.limits),
    close: async () => {
      await pipes.close();
      await janitor.finish();
    },
  };
}
