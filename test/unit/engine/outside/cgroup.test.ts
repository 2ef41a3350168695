import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { BerthError } from "../../../../src/base/errors.ts";
import { usageInside } from "../../../../src/engine/bubblewrap/control-group.ts";
import { GroupFreezer, groupUsage } from "../../../../src/engine/outside/cgroup.ts";

/** Directories with these files, by controller. */
function groupsWith(files: Readonly<Record<string, Readonly<Record<string, string>>>>): Map<string, string> {
  const root = mkdtempSync(path.join(tmpdir(), "berth-groups-"));
  onTestFinished(() => rmSync(root, { recursive: true }));
  return new Map(
    Object.entries(files).map(([controller, texts]) => {
      const dir = path.join(root, controller || "unified");
      mkdirSync(dir);
      for (const [name, text] of Object.entries(texts)) writeFileSync(path.join(dir, name), text);
      return [controller, dir];
    }),
  );
}

const V1 = {
  memory: {
    "memory.usage_in_bytes": "9500\n",
    "memory.stat": "inactive_file 5\ntotal_inactive_file 1000\ntotal_active_file 500\n",
  },
  cpuacct: { "cpuacct.usage": "7000000\n" },
  pids: { "pids.current": "4\n" },
};
const V2 = {
  "memory.current": "9500\n",
  "memory.stat": "anon 1\ninactive_anon 5\ninactive_file 1000\nactive_file 500\n",
  "cpu.stat": "usage_usec 7000\nuser_usec 1\n",
  "pids.current": "4\n",
};
const USAGE = { memoryBytes: 8000, cpuNanos: 7_000_000, pids: 4 };

test.each<[string, Parameters<typeof groupsWith>[0]]>([
  ["version 1", V1],
  ["version 2", { "": V2 }],
  ["version 1, next to a version 2 without controllers", { ...V1, "": { "cpu.stat": "usage_usec 1\n" } }],
  ["both versions", { memory: V1.memory, "": { ...V2, "memory.current": "1\n" } }],
])("the usage of control groups of %s is read", (_, files) => {
  expect(groupUsage(groupsWith(files))).toEqual(USAGE);
});

test.each<[string, string, Readonly<Record<string, string>>, string]>([
  ["1", "memory", V1.memory, "total_"],
  ["2", "", V2, ""],
])("pages that move between the lists of version %s meanwhile count once", (_, controller, files, prefix) => {
  const groups = groupsWith({ [controller]: files });
  const directory = groups.get(controller) ?? "";
  let moves = 0;
  const stat = (): string => {
    const [inactive, active] = moves++ % 2 === 0 ? [1500, 0] : [0, 1500];
    return `${prefix}inactive_file ${inactive}\n${prefix}active_file ${active}\n`;
  };
  // Whenever the place of a file is looked up, the pages are in the other list.
  const moving = new (class extends Map<string, string> {
    override get(name: string): string | undefined {
      if (name === controller) writeFileSync(path.join(directory, "memory.stat"), stat());
      return super.get(name);
    }
  })(groups);
  expect(groupUsage(moving).memoryBytes).toBe(8000);
});

test("what no controller measures is left out, and cache never makes memory negative", () => {
  expect(groupUsage(new Map())).toEqual({});
  expect(groupUsage(new Map([["", "/nonexistent"]]))).toEqual({});
  expect(groupUsage(groupsWith({ pids: V1.pids }))).toEqual({ pids: 4 });
  expect(groupUsage(groupsWith({ "": { ...V2, "memory.current": "10\n" } }))).toMatchObject({
    memoryBytes: 0,
  });
});

test("a bubblewrap sandbox has one process less than its group, and never fewer than none", () => {
  expect(usageInside(groupsWith({ pids: V1.pids }))).toEqual({ pids: 3 });
  // All have ended, and the service does not know it yet.
  expect(usageInside(groupsWith({ pids: { "pids.current": "0\n" } }))).toEqual({ pids: 0 });
});

describe("a control group", () => {
  /** A group whose processes are not frozen, and the text of one of its files. */
  const groupOf = (files: Readonly<Record<string, string>>) => {
    const directory = groupsWith({ "": files }).get("") ?? "";
    return {
      freezer: new GroupFreezer(directory),
      write: (file: string, text: string) => writeFileSync(path.join(directory, file), text),
      read: (file: string) => readFileSync(path.join(directory, file), "latin1"),
    };
  };
  const RUNNING_V2 = { "cgroup.freeze": "0\n", "cgroup.events": "populated 1\nfrozen 0\n" };

  test("of version 2 is paused once the kernel says so, until it is thawed", async () => {
    const { freezer, read, write } = groupOf(RUNNING_V2);
    let isPaused = false;
    const pausing = freezer.pause().then(() => {
      isPaused = true;
    });
    expect([isPaused, read("cgroup.freeze")]).toEqual([false, "1"]);
    write("cgroup.events", "populated 1\nfrozen 1\n");
    await pausing;
    expect(freezer.paused).toBe(true);
    expect(await freezer.frozen(async (stillness) => stillness)).toBe("paused");
    freezer.thaw();
    expect([freezer.paused, read("cgroup.freeze")]).toEqual([false, "0"]);
  });

  test("of version 1 is paused, until it is thawed", async () => {
    const { freezer, read } = groupOf({ "freezer.state": "THAWED\n" });
    await freezer.pause();
    expect([freezer.paused, read("freezer.state")]).toEqual([true, "FROZEN"]);
    freezer.thaw();
    expect([freezer.paused, read("freezer.state")]).toEqual([false, "THAWED"]);
  });

  test("is thawed again by a pause that is given up", async () => {
    const { freezer, read } = groupOf(RUNNING_V2);
    const over = new AbortController();
    const pausing = freezer.pause(over.signal);
    over.abort(new BerthError("CANCELED", "given up"));
    await expect(pausing).rejects.toThrow("given up");
    expect(read("cgroup.freeze")).toBe("0");
  });

  test("that does not freeze in time is looked at anyway, and thawed", async () => {
    const { freezer, read } = groupOf(RUNNING_V2);
    expect(await freezer.frozen(async (stillness) => [stillness, read("cgroup.freeze")])).toEqual([
      "running",
      "1",
    ]);
    expect(read("cgroup.freeze")).toBe("0");
  });
});
