import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import path from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { CgroupsV1 } from "../../../../src/engine/bubblewrap/cgroup-v1.ts";
import { CgroupsV2 } from "../../../../src/engine/bubblewrap/cgroup-v2.ts";
import type { ControlGroups } from "../../../../src/engine/bubblewrap/control-group.ts";
import { sandboxIdentity } from "../../../../src/engine/bubblewrap/sandbox-user.ts";
import { newDataDir } from "../../../support/settings.ts";

const RESOURCES = { memoryBytes: 1 << 28, cpuMillis: 1000, pidsLimit: 64, diskBytes: undefined };

/** Groups in ordinary directories, in which the kernel does not make the files of a new group. */
const VERSIONS: Readonly<Record<string, () => ControlGroups | undefined>> = {
  "version 1": () => {
    const root = newDataDir();
    const hierarchies = ["memory", "pids"].map((name) => [name, path.join(root, name)] as const);
    return CgroupsV1.open(new Map(hierarchies), "home", sandboxIdentity());
  },
  "version 2": () => {
    const own = newDataDir();
    const home = path.join(own, "home");
    fs.mkdirSync(home);
    for (const dir of [own, home]) {
      fs.writeFileSync(path.join(dir, "cgroup.controllers"), "pids");
      for (const file of ["cgroup.subtree_control", "cgroup.procs"])
        fs.writeFileSync(path.join(dir, file), "");
    }
    return CgroupsV2.open(own, "home", sandboxIdentity());
  },
};

function open(version: string): ControlGroups {
  const groups = VERSIONS[version]?.();
  if (groups === undefined) throw new Error("there are no control groups");
  return groups;
}

const left = ({ homes }: ControlGroups): string[] =>
  homes.flatMap((home) => fs.readdirSync(home)).filter((name) => name === "sandbox");

test.each(Object.keys(VERSIONS))("a group of %s that cannot be made leaves no directory", (version) => {
  const groups = open(version);
  expect(() => groups.create("sandbox", RESOURCES)).toThrow("ENOENT");
  expect(left(groups)).toEqual([]);
});

test.each(["EAGAIN", "ENOMEM", "ENOSPC"])(
  "a kernel without room for a group (%s) may have some soon",
  (code) => {
    const groups = open("version 1");
    const mkdirSync = fs.mkdirSync;
    const spy = vi.spyOn(fs, "mkdirSync").mockImplementation((place, options) => {
      if (String(place).includes("/pids/")) throw Object.assign(new Error(code), { code });
      return mkdirSync(place, options);
    });
    syncBuiltinESMExports();
    onTestFinished(() => {
      spy.mockRestore();
      syncBuiltinESMExports();
    });
    const failure = expect.objectContaining({
      name: "BerthError",
      reason: "TOO_MANY_OPERATIONS",
      message: expect.stringContaining("control group"),
    });
    expect(() => groups.create("sandbox", RESOURCES)).toThrow(failure);
    expect(left(groups)).toEqual([]);
  },
);
