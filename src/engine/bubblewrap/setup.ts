import type { EngineInfo } from "../port.ts";
import { systemArguments } from "./arguments.ts";
import { type BwrapProgram, findBwrap } from "./bwrap-program.ts";
import type { ControlGroups } from "./control-group.ts";
import { ENTRY_COMMAND, ENTRY_WIDTH } from "./entry-script.ts";
import { findControlGroups } from "./find-control-groups.ts";
import { type Identity, sandboxIdentity } from "./identity.ts";
import { describeEngine } from "./info.ts";
import { Janitor } from "./janitor.ts";
import { Launcher } from "./launcher.ts";
import { ownName } from "./leftovers.ts";
import { probeSandbox } from "./probe.ts";
import { Reports } from "./reports.ts";
import { createRuntimeDir } from "./runtime-dir.ts";

/** All that the sandboxes of a running engine share. */
export interface BubblewrapSetup {
  readonly program: BwrapProgram;
  readonly info: EngineInfo;
  readonly identity: Identity;
  readonly groups: ControlGroups;
  readonly reports: Reports;
  /** Starts the keepers of sandboxes, each from its script. */
  readonly keepers: Launcher;
  /** Starts the attendants of processes. */
  readonly attendants: Launcher;
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
  await probeSandbox(identity, system);
  const name = ownName();
  const groups = await findControlGroups(name, identity);
  const runtime = await createRuntimeDir(name, rootfs);
  const janitor = new Janitor(runtime.path, groups.homes);
  const reports = new Reports();
  const onGroup = (group: number) => janitor.endWithService(group);
  const common = { identity, joinFiles: groups.attendants, reports, onGroup };
  const keepers = new Launcher({ ...common, command: ["/bin/sh", "-c"], width: 1, nothing: [":"] });
  const attendants = new Launcher({
    ...common,
    command: ENTRY_COMMAND,
    width: ENTRY_WIDTH,
    nothing: Array.from({ length: ENTRY_WIDTH }, () => "--version"),
  });
  return {
    ...{ program, identity, groups, reports, keepers, attendants },
    ...{ system, etc: runtime.etc, stage: runtime.stage },
    info: describeEngine(program, groups.limits),
    close: async () => {
      await Promise.all([keepers.close(), attendants.close()]);
      await janitor.finish();
    },
  };
}
