import {
  closeSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openMounts } from "../../../../src/engine/bubblewrap/mounts.ts";
import { sandboxIdentity } from "../../../../src/engine/bubblewrap/sandbox-user.ts";
import type { HostMount } from "../../../../src/engine/port.ts";
import { scaled } from "../../../support/scale.ts";
import { failure, run, sh, spec } from "../docker/support.ts";
import { useBubblewrap, useDirectory } from "./support.ts";

const base = useDirectory();
const allowed = path.join(base, "allowed");
const data = path.join(allowed, "data");
const moved = path.join(allowed, "moved");
const outside = path.join(base, "outside");
const roots = [allowed, "/proc"];
const engine = useBubblewrap({ allowedHostPaths: roots });
const strict = useBubblewrap();

beforeEach(() => {
  for (const dir of [data, outside]) mkdirSync(dir, { recursive: true });
  writeFileSync(path.join(data, "file"), "inside");
  writeFileSync(path.join(outside, "file"), "outside");
  symlinkSync(outside, path.join(allowed, "escape"));
  symlinkSync("data", path.join(allowed, "alias"));
});
afterEach(() => rmSync(allowed, { recursive: true }));

function mount(hostPath: string, changes: Partial<HostMount> = {}): HostMount {
  return { kind: "host", hostPath, target: "/mnt/data", readOnly: false, giveToUser: false, ...changes };
}

/** Descriptors and mounts of this process below the tests' directory. */
function traces(): string[] {
  const open = readdirSync("/proc/self/fd").map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return "";
    }
  });
  const mounts = readFileSync("/proc/self/mounts", "utf8").split("\n");
  return [...open, ...mounts].filter((line) => line.includes(base));
}

describe("a mount", () => {
  test("shows the directory, accepts writes, and leaves nothing open on the host", async () => {
    const mounts = [mount(data, { giveToUser: true }), mount(allowed, { target: "/mnt/all" })];
    const { ref } = await engine.create(spec({ mounts }));
    expect(await sh(engine, ref, "cat /mnt/data/file /mnt/all/data/file; echo new >/mnt/data/new")).toBe(
      "insideinside",
    );
    expect(readFileSync(path.join(data, "new"), "utf8")).toBe("new\n");
    const options = await sh(engine, ref, "grep ' /mnt/data ' /proc/self/mountinfo");
    expect(options).toContain("nosuid,nodev");
    expect(options).not.toMatch(/shared:/);
    expect(traces()).toEqual([]);
  });

  test("gives no process a descriptor that leads out of it", async () => {
    const mounts = Array.from({ length: 8 }, (_, i) => mount(data, { target: `/mnt/data${i}` }));
    const { ref } = await engine.create(spec({ mounts }));
    const shown = await sh(engine, ref, "ls -l /proc/[0-9]*/fd; ls /mnt");
    expect(shown).toContain("data7");
    expect(shown).not.toContain(base);
  });

  test("refuses writes if it is read-only, and cannot be made writable", async () => {
    const mounts = [mount(data, { readOnly: true, giveToUser: true })];
    const { ref } = await engine.create(spec({ mounts }));
    for (const line of [
      "touch /mnt/data/new",
      "echo changed >/mnt/data/file",
      "mount -o remount,rw /mnt/data",
      "umount /mnt/data",
    ]) {
      expect((await run(engine, ref, ["sh", "-c", line])).exitCode, line).not.toBe(0);
    }
    expect(readdirSync(data)).toEqual(["file"]);
    expect(readFileSync(path.join(data, "file"), "utf8")).toBe("inside");
  });

  test("may be named through a symbolic link that stays inside", async () => {
    const { ref } = await engine.create(spec({ mounts: [mount(path.join(allowed, "alias"))] }));
    expect(await sh(engine, ref, "cat /mnt/data/file")).toBe("inside");
  });
});

describe("refused before a sandbox exists:", () => {
  test.each([
    ["the whole machine", "/"],
    ["a directory outside", outside],
    ["a symbolic link out", path.join(allowed, "escape")],
    ["a way out", `${allowed}/../outside`],
    ["a way out and deeper", `${data}/../../outside`],
    ["a neighbour with the same beginning", `${allowed}-not`],
    ["a file", path.join(data, "file")],
    ["what is missing", path.join(allowed, "missing")],
    ["a relative path", "data"],
    ["an empty path", ""],
    ["the kernel's own", "/proc/self"],
  ])("%s", async (_, hostPath) => {
    mkdirSync(`${allowed}-not`, { recursive: true });
    const error = await failure(engine.create(spec({ mounts: [mount(hostPath)] })), "NOT_ALLOWED");
    expect(error.message).toContain("--allow-host-path");
    expect(await engine.list()).toEqual([]);
    expect(traces()).toEqual([]);
  });

  test("any mount if no directory is allowed", async () => {
    await failure(strict.create(spec({ mounts: [mount(data)] })), "NOT_ALLOWED");
  });
});

describe("a directory that is replaced after it was checked", () => {
  test("stays the checked one", async () => {
    const [opened] = await openMounts([mount(data)], { allowed: roots, hidden: [] }, sandboxIdentity());
    if (opened === undefined) throw new Error("nothing was opened");
    try {
      renameSync(data, moved);
      symlinkSync(outside, data);
      expect(readFileSync(`/proc/self/fd/${opened.fd}/file`, "utf8")).toBe("inside");
    } finally {
      closeSync(opened.fd);
    }
  });

  test("never shows a sandbox its replacement", async () => {
    let over = false;
    const exchange = (async () => {
      while (!over) {
        renameSync(data, moved);
        symlinkSync(outside, data);
        await nextTurn();
        unlinkSync(data);
        renameSync(moved, data);
        await nextTurn();
      }
    })();
    const seen = new Set<string>();
    try {
      for (let i = 0; i < scaled(200, 60); i++) {
        const made = await engine.create(spec({ mounts: [mount(data)] })).catch((error) => error);
        if (made.ref === undefined) seen.add(made.reason);
        else {
          seen.add(await sh(engine, made.ref, "cat /mnt/data/file"));
          await engine.remove(made.ref);
        }
      }
    } finally {
      over = true;
      await exchange;
    }
    for (const outcome of seen) expect(["inside", "NOT_ALLOWED", "SANDBOX_START_FAILED"]).toContain(outcome);
    expect(traces()).toEqual([]);
  });
});
