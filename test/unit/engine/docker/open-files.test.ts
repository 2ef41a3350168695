import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { daemonOpenFilesLimit } from "../../../../src/engine/docker/info.ts";

test("the limit of open files is that of the daemon whose PID file is next to the socket", async () => {
  const dir = mkdtempSync(path.join(tmpdir(), "berth-open-files-"));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const daemon = spawn("sh", ["-c", "ulimit -n 123 && echo limited && exec sleep 1000"]);
  onTestFinished(() => void daemon.kill());
  await once(daemon.stdout, "data");
  const socket = path.join(dir, "docker.sock");
  const before = await daemonOpenFilesLimit(socket);
  expect(before).toBe(await daemonOpenFilesLimit(undefined));
  expect(before).not.toBe(123);
  writeFileSync(path.join(dir, "docker.pid"), `${daemon.pid}`);
  expect(await daemonOpenFilesLimit(socket)).toBe(123);
});
