import { type Finding, yesOrLimited } from "../../base/diagnosis.ts";
import { SILENT } from "../../base/logger.ts";
import type { EngineInfo } from "../port.ts";
import { describeIsolation } from "../port.ts";
import { systemArguments } from "./arguments.ts";
import type { ControlGroups } from "./control-group.ts";
import { BwrapProblem, INSTALL } from "./errors.ts";
import { findFilter, type SystemCallFilter } from "./filter.ts";
import { DELEGATE, describeEngine, missingLimits } from "./info.ts";
import { Janitor, ownName } from "./janitor.ts";
import { findBwrap, probeEntry, probeSandbox } from "./probe.ts";
import { createRuntimeDir } from "./runtime-dir.ts";
import { type Identity, sandboxIdentity } from "./sandbox-user.ts";
import { findControlGroups } from "./setup.ts";

/** Checks whether bubblewrap can create sandboxes here, by creating one that ends at once. */
export async function diagnoseBubblewrap(rootfs: string): Promise<Finding[]> {
  try {
    const program = await findBwrap();
    const identity = sandboxIdentity();
    await probeSandbox(identity, systemArguments(rootfs));
    const groups = await findControlGroups(ownName(), identity);
    const filter = findFilter();
    await tryFilter(filter, identity, rootfs, groups);
    const info = describeEngine(program, groups.limits, typeof filter !== "string");
    const { pause } = info.capabilities;
    return [
      { subject: "bubblewrap", status: "ok", found: `bubblewrap ${program.version}, as uid ${identity.uid}` },
      { subject: "bubblewrap isolation", status: "ok", found: describeIsolation(info.isolation) },
      yesOrLimited(
        "bubblewrap system calls",
        typeof filter !== "string",
        "filtered as Docker does by default",
        {
          found: `not filtered, so that the whole kernel is in reach: ${filter}`,
          fix: "Use the Docker engine, or a machine with an x86-64 or arm64 processor and Linux 5.8 or newer",
        },
      ),
      limits(info, groups.description),
      yesOrLimited("bubblewrap mounts", program.bindsDescriptors, "host directories can be mounted", {
        found: `host directories cannot be mounted: that needs 0.10, or Debian's 0.8.0-2+deb12u1`,
        fix: INSTALL,
      }),
      yesOrLimited("bubblewrap pause", pause, "sandboxes can be paused", {
        found: "sandboxes cannot be paused: this user may not write control groups",
        fix: DELEGATE,
      }),
      {
        subject: "bubblewrap network",
        status: "ok",
        found: "sandboxes can reach chosen domains, through a proxy; they have no other network",
      },
    ];
  } catch (error) {
    if (!(error instanceof BwrapProblem)) throw error;
    return [{ subject: "bubblewrap", status: "missing", found: error.message, fix: error.fix }];
  }
}

/** Creates the files that a service would, runs the executable that enters sandboxes, and removes the files. */
async function tryFilter(
  filter: SystemCallFilter | string,
  identity: Identity,
  rootfs: string,
  { homes }: ControlGroups,
): Promise<void> {
  const runtime = typeof filter === "string" ? undefined : await createRuntimeDir(ownName(), rootfs, filter);
  try {
    if (runtime?.filterFiles !== undefined) await probeEntry(identity, runtime.filterFiles.entry);
  } finally {
    await new Janitor(runtime?.path, homes, SILENT).finish();
  }
}

function limits(info: EngineInfo, description: string): Finding {
  const missing = missingLimits(info);
  return yesOrLimited(
    "bubblewrap limits",
    missing.length === 0,
    `memory, cpu, processes and disk, by ${description}`,
    { found: `${description}: no limit of ${missing.join(", ")}`, fix: DELEGATE },
  );
}
