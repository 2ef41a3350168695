import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  connectScript,
  listenScript,
  type Place,
  readAttempts,
} from "../../../../src/engine/kubernetes/network/programs.ts";
import { eventually } from "../../../support/eventually.ts";

const dir = mkdtempSync(path.join(tmpdir(), "berth-programs-"));

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  return port;
}

async function attempt(places: readonly Place[]) {
  const { stdout } = await promisify(execFile)("/bin/sh", ["-c", connectScript(dir, places)]);
  return readAttempts(stdout, places);
}

describe("programs that pods of any image run", () => {
  let listener: ChildProcess | undefined;
  let port = 0;
  beforeAll(async () => {
    port = await freePort();
    // In its own process group, so that killing the group also ends the program.
    listener = spawn("/bin/sh", ["-c", listenScript(dir, port)], { stdio: "ignore", detached: true });
    await eventually(async () => (await attempt([{ address: "127.0.0.1", port }]))[0] === "connected");
  });
  afterAll(() => {
    if (listener?.pid !== undefined) process.kill(-listener.pid, "SIGKILL");
    rmSync(dir, { recursive: true });
  });

  test("connect if something listens, and report if nothing does", async () => {
    const closed = await freePort();
    expect(
      await attempt([
        { address: "127.0.0.1", port },
        { address: "127.0.0.1", port: closed },
      ]),
    ).toEqual(["connected", "blocked"]);
  });

  test("accept any number of connections, so that a full queue is never mistaken for a closed network", async () => {
    for (let round = 0; round < 4; round++) {
      const places = Array.from({ length: 12 }, () => ({ address: "127.0.0.1", port }));
      expect(await attempt(places)).toEqual(places.map(() => "connected"));
    }
  });

  test("truncated output, or an end for another reason, says nothing about the network", () => {
    const places = [1, 2, 3, 4].map((at) => ({ address: "10.0.0.1", port: at }));
    expect(readAttempts("0 0\n1 115\n2 9\n", places)).toEqual(["connected", "blocked", "failed", "failed"]);
    expect(readAttempts("", places)).toEqual(places.map(() => "failed"));
  });
});
