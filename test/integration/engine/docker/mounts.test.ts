import { execFileSync } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import type { Logger } from "../../../../src/base/logger.ts";
import { DockerEngine } from "../../../../src/engine/docker/engine.ts";
import { MountStage } from "../../../../src/engine/docker/mounts.ts";
import type { HostMount } from "../../../../src/engine/port.ts";
import { containersOf, removeContainers } from "../../../support/docker.ts";
import { eventually } from "../../../support/eventually.ts";
import { FaultProxy } from "../../../support/fault-proxy.ts";
import { takeDescriptors } from "../../../support/no-descriptors.ts";
import { failure, run, sh, silent, spec, useEngine } from "./support.ts";

const base = mkdtempSync(path.join(tmpdir(), "berth-mounts-"));
const allowed = path.join(base, "allowed");
const data = path.join(allowed, "data");
const outside = path.join(base, "outside");
const { engine, instance } = useEngine({
  allowedHostPaths: [allowed, "/var/run", "/proc", path.join(base, "missing")],
});
const { engine: strict } = useEngine();

beforeEach(() => {
  for (const dir of [data, outside]) mkdirSync(dir, { recursive: true });
  writeFileSync(path.join(data, "file"), "inside");
  writeFileSync(path.join(outside, "file"), "outside");
  symlinkSync(outside, path.join(allowed, "escape"));
  symlinkSync("data", path.join(allowed, "alias"));
});

afterEach(async () => {
  await removeContainers(instance);
  rmSync(allowed, { recursive: true });
});

afterAll(() => rmSync(base, { recursive: true, force: true }));

function mount(hostPath: string, changes: Partial<HostMount> = {}): HostMount {
  return { kind: "host", hostPath, target: "/mnt/data", readOnly: false, giveToUser: false, ...changes };
}

describe("a mount", () => {
  test("shows the directory, accepts writes, and is its own mount without devices and set-user-id", async () => {
    const { ref } = await engine.create(spec({ mounts: [mount(data)] }));
    expect(await sh(engine, ref, "cat /mnt/data/file; echo written >/mnt/data/new")).toBe("inside");
    expect(readFileSync(path.join(data, "new"), "utf8")).toBe("written\n");
    const options = await sh(engine, ref, "grep ' /mnt/data ' /proc/self/mountinfo");
    expect(options).toContain("nosuid,nodev");
    expect(options).not.toMatch(/shared:|master:/);
  });

  test("refuses writes if it is read-only", async () => {
    const { ref } = await engine.create(spec({ mounts: [mount(data, { readOnly: true })] }));
    expect((await run(engine, ref, ["touch", "/mnt/data/new"])).exitCode).toBe(1);
  });

  test("is given to the user only on request", async () => {
    const other = path.join(allowed, "other dir");
    mkdirSync(other);
    const mounts = [mount(data), mount(other, { target: "/mnt/other dir", giveToUser: true })];
    const { ref } = await engine.create(spec({ user: "nobody", workingDir: "/mnt/other dir", mounts }));
    expect(await sh(engine, ref, "stat -c %U /mnt/data '/mnt/other dir'")).toBe("root\nnobody\n");
  });

  test("may be named through a symbolic link that stays inside", async () => {
    const { ref } = await engine.create(spec({ mounts: [mount(path.join(allowed, "alias"))] }));
    expect(await sh(engine, ref, "cat /mnt/data/file")).toBe("inside");
  });

  test("leaves nothing on the host", async () => {
    const before = stagedMounts();
    const { ref } = await engine.create(
      spec({ mounts: [mount(data), mount(allowed, { target: "/mnt/all" })] }),
    );
    expect(stagedMounts()).toEqual(before);
    expect(await sh(engine, ref, "cat /mnt/data/file /mnt/all/data/file")).toBe("insideinside");
    await failure(engine.create(spec({ mounts: [mount(data)], user: "nosuchuser" })), "INVALID_ARGUMENT");
    expect(stagedMounts()).toEqual(before);
  });
});

test("nothing is left of a create whose container cannot be inspected for later mounts", async () => {
  const proxy = await FaultProxy.start();
  const other = new DockerEngine({ instance, logger: silent, host: proxy.host });
  onTestFinished(async () => {
    await other.close();
    await proxy.stop();
  });
  await other.info();
  proxy.breaks = /^GET \/containers\/[0-9a-f]{64}\/json/;
  await failure(other.create(spec({ takesMounts: true })), "ENGINE_UNAVAILABLE");
  expect(await containersOf(instance)).toEqual([]);
});

test("a mount never passes unpinned for lack of descriptors, and a stage that could not be made is made later", async () => {
  const stages = (): string[] =>
    readdirSync("/run/berth/mounts").filter((name) => name.startsWith(`${process.pid}-`));
  const before = stages();
  for (let free = 0; free <= 6; free++) {
    const stage = new MountStage(silent);
    const pin = async (): Promise<string> => {
      const { mounts, release } = await stage.stage([mount(data)]);
      await release();
      return mounts[0]?.hostPath === data ? "unpinned" : "pinned";
    };
    const end = takeDescriptors(free);
    const early = await pin().catch((error) => error.reason ?? error);
    end();
    expect(["pinned", "TOO_MANY_OPERATIONS"], `with ${free} left`).toContain(early);
    expect(await pin()).toBe("pinned");
    await stage.close();
  }
  expect(stages()).toEqual(before);
});

test("what warm containers need for mounts is made later if there were no descriptors for it", async () => {
  const stage = useStage();
  const prepared = await stage.stage([mount(data)]);
  await prepared.release();
  const make = async (): Promise<string> => ((await stage.inert()) === undefined ? "none" : "made");
  for (let free = 0; free <= 6; free++) {
    const end = takeDescriptors(free);
    const early = await make().catch((error) => error.reason ?? error);
    end();
    expect(["made", "TOO_MANY_OPERATIONS"], `with ${free} left`).toContain(early);
  }
  expect(await make()).toBe("made");
});

test("a mount for which the stage has no space is not taken for one that was not allowed", async () => {
  const stage = useStage();
  const { mounts, release } = await stage.stage([mount(data)]);
  await release();
  const dir = path.dirname(mounts[0]?.hostPath ?? "");
  execFileSync("mount", ["-t", "tmpfs", "-o", "nr_inodes=1", "tmpfs", dir]);
  try {
    await failure(stage.stage([mount(data)]), "TOO_MANY_OPERATIONS");
  } finally {
    execFileSync("umount", [dir]);
  }
});

test("a mount that cannot be unstaged now fails nothing, and is unstaged later", async () => {
  const warn = vi.fn();
  const stage = useStage({ ...silent, warn });
  const before = stagedMounts();
  const staged = await stage.stage([mount(data), mount(allowed)]);
  const end = takeDescriptors(0);
  const released = await staged.release().then(
    () => "released",
    (error) => error,
  );
  end();
  expect(released).toBe("released");
  expect(stagedMounts()).toHaveLength(before.length + 2);
  expect(warn.mock.calls).toEqual([
    [{ err: expect.any(Error) }, expect.stringContaining("Berth unmounts it later")],
  ]);
  await (await stage.stage([mount(data)])).release();
  expect(stagedMounts()).toEqual(before);
});

test("that mounts cannot be pinned is logged once, with what to do", async () => {
  const warn = vi.fn();
  const stage = useStage({ ...silent, warn });
  vi.stubEnv("PATH", "/without-mount");
  onTestFinished(() => void vi.unstubAllEnvs());
  for (let i = 0; i < 2; i++) {
    const { mounts } = await stage.stage([mount(data)]);
    expect(mounts).toEqual([mount(data)]);
  }
  expect(warn.mock.calls).toEqual([
    [
      { err: expect.anything() },
      expect.stringContaining("allow only directories that no sandbox can write to"),
    ],
  ]);
});

function stagedMounts(): string[] {
  return readFileSync("/proc/self/mounts", "utf8")
    .split("\n")
    .filter((line) => line.includes(` /run/berth/mounts/${process.pid}-`));
}

describe("refused before any container exists:", () => {
  test.each([
    ["the whole machine", "/"],
    ["a directory outside", outside],
    ["a symbolic link out", path.join(allowed, "escape")],
    ["a way out", path.join(allowed, "..", "outside")],
    ["a way out and deeper", `${data}/../../outside`],
    ["a neighbour with the same beginning", `${allowed}-not`],
    ["a file", path.join(data, "file")],
    ["what is missing", path.join(allowed, "missing")],
    ["a relative path", "data"],
    ["an empty path", ""],
    ["Docker's socket", "/var/run/docker.sock"],
    ["a directory that holds it", "/var/run"],
    ["the kernel's own", "/proc/self"],
  ])("%s", async (_, hostPath) => {
    mkdirSync(`${allowed}-not`, { recursive: true });
    const error = await failure(engine.create(spec({ mounts: [mount(hostPath)] })), "NOT_ALLOWED");
    expect(error.message).toContain("--allow-host-path");
    expect(await containersOf(instance)).toEqual([]);
  });

  test("any mount if no directory is allowed", async () => {
    await failure(strict.create(spec({ mounts: [mount(data)] })), "NOT_ALLOWED");
  });
});

/** A stage that is removed after the test. */
function useStage(logger: Logger = silent): MountStage {
  const stage = new MountStage(logger);
  onTestFinished(() => stage.close());
  return stage;
}

describe("a directory that is swapped after it was checked", () => {
  test("is refused if it leads elsewhere by then", async () => {
    renameSync(data, path.join(allowed, "moved"));
    symlinkSync(outside, data);
    await failure(useStage().stage([mount(data)]), "NOT_ALLOWED");
  });

  test("is the checked one if it is swapped later still", async () => {
    const staged = await useStage().stage([mount(data)]);
    try {
      renameSync(data, path.join(allowed, "moved"));
      symlinkSync(outside, data);
      expect(readdirSync(staged.mounts[0]?.hostPath ?? "")).toEqual(["file"]);
      expect(readFileSync(path.join(staged.mounts[0]?.hostPath ?? "", "file"), "utf8")).toBe("inside");
    } finally {
      await staged.release();
      await staged.release();
    }
  });

  test("is cleaned up after a process that was killed", async () => {
    await orphanStage("orphan");
    const staged = await useStage().stage([mount(data)]);
    await staged.release();
    expect(readdirSync("/run/berth/mounts")).not.toContain("999999999-orphan");
    expect(readdirSync(data)).toEqual(["file"]);
  });

  test("is cleaned up by several services that start at once, none of which fails for it", async () => {
    for (const name of ["one", "two", "three"]) await orphanStage(name);
    const staged = await Promise.all(Array.from({ length: 5 }, () => useStage().stage([mount(data)])));
    expect(readdirSync("/run/berth/mounts").filter((name) => name.startsWith("999999999-"))).toEqual([]);
    for (const { mounts, release } of staged) {
      expect(mounts[0]?.hostPath).toMatch(/^\/run\/berth\/mounts\//);
      await release();
    }
    expect(readdirSync(data)).toEqual(["file"]);
  });
});

/** The stage of a process that is gone. */
async function orphanStage(name: string): Promise<void> {
  const place = `/run/berth/mounts/999999999-${name}/0`;
  // Services of other tests may clean it up halfway.
  await eventually(() => {
    try {
      mkdirSync(place, { recursive: true });
      execFileSync("mount", ["--bind", data, place], { stdio: "ignore" });
      return true;
    } catch {
      return false;
    }
  });
}
