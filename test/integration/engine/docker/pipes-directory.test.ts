import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import path from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { pipesDirectory } from "../../../../src/engine/docker/container-pipes.ts";
import { useApp } from "../../../support/app.ts";
import { newDataDir, newInstance } from "../../../support/settings.ts";
import { sh, spec, useEngine } from "./support.ts";

const base = mkdtempSync("/var/tmp/berth-secret-path-");
const run = path.join(base, "run");
mkdirSync(run);
execFileSync("mount", ["-n", "-t", "tmpfs", "-o", "mode=755", "tmpfs", run]);

afterAll(() => {
  execFileSync("umount", ["-n", "-l", run]);
  rmSync(base, { recursive: true });
});

describe("what a container sees of the host's paths", () => {
  const pipesDir = pipesDirectory(path.join(base, "data"), newInstance(), run);
  const { engine } = useEngine({ pipesDir });

  test("its pipes reveal nothing about the data directory", async () => {
    const { ref } = await engine.create(spec());
    const mounts = await sh(engine, ref, "cat /proc/self/mountinfo");
    expect(mounts).toContain("/run/berth-pipes");
    expect(mounts).not.toContain("berth-secret-path");
    await engine.remove(ref);
  });
});

test("if the runtime directory is not a file system of its own, pipes are below the data directory", () => {
  expect(pipesDirectory("/data", "instance", path.join(run, "..", "none"))).toBe("/data/pipes");
  mkdirSync(path.join(run, "same"));
  expect(pipesDirectory("/data", "instance", path.join(run, "same"))).toBe("/data/pipes");
});

describe("on bubblewrap", () => {
  const dataDir = newDataDir();
  const service = useApp({ engine: "bubblewrap", dataDir });

  test("a sandbox sees nothing of the data directory", async () => {
    const { sandbox_id: id } = await service.client.createSandbox({});
    expect(await service.client.output(id, "cat /proc/self/mountinfo")).not.toContain(path.basename(dataDir));
    await service.client.deleteSandbox(id);
  });
});
