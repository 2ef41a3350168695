import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import type { OutputStream } from "../../../src/engine/port.ts";
import type { LeasedSandbox } from "../../../src/sandboxes/lease.ts";
import { HeldMemory } from "../../../src/sessions/types/held-memory.ts";
import type { ProgramHost } from "../../../src/sessions/types/program.ts";
import { Desktop } from "../../../src/sessions/types/vm/desktop.ts";
import { keptBytes } from "../../support/kept-bytes.ts";

const MIB = 1024 * 1024;
const PLACE = {
  sessionId: "s",
  env: {},
  workingDir: "/",
  width: 800,
  height: 600,
  dpi: 96,
  record: undefined,
};
const NEVER = new AbortController().signal;
const BOUNDS = { signal: NEVER, timeout: NEVER };

/** A sandbox of an owner. */
function sandboxOf(owner: string): LeasedSandbox {
  const spec = { env: {}, secretEnv: {}, resources: { memoryBytes: MIB } };
  return { user: "", owner, spec } as unknown as LeasedSandbox;
}

/** A desktop whose driver answers with pictures of 1 MiB. */
async function startDesktop(owner = "owner", memory = new HeldMemory()) {
  const { promise: end, resolve: exit } = Promise.withResolvers<{ kind: "exited"; code: number }>();
  const driver = { isMute: false, keptBack: 0, exit: () => exit({ kind: "exited", code: 3 }) };
  let say: (stream: OutputStream, chunk: Buffer) => void = () => {};
  const job = {
    ...{ end, hold: () => undefined, resume: () => {}, close: () => {} },
    closeStdin: driver.exit,
    // Skips the modules that come before the first line.
    writeStdin: async (data: Buffer) => {
      if (driver.isMute || !data.subarray(-1).equals(Buffer.from("\n"))) return;
      const { id, op } = JSON.parse(data.toString());
      const header = Buffer.from(JSON.stringify({ id, data: { display: ":1", authority: "/x" } }));
      const payload = Buffer.alloc(op === "start" ? 0 : MIB);
      const lengths = Buffer.alloc(8);
      lengths.writeUInt32BE(header.length, 0);
      lengths.writeUInt32BE(payload.length, 4);
      const answer = Buffer.concat([lengths, header, payload]);
      say("stdout", answer.subarray(0, answer.length - driver.keptBack));
    },
  };
  const start = async (_sandbox: unknown, _request: unknown, output: typeof say) => {
    say = output;
    return job;
  };
  const host = { runner: { start }, memory } as unknown as ProgramHost;
  return { desktop: await Desktop.start(host, sandboxOf(owner), PLACE, NEVER), driver };
}

test("a desktop keeps nothing of the answers that it gave, and its end fails requests", async () => {
  const { desktop, driver } = await startDesktop();
  const before = await keptBytes();
  for (let i = 0; i < 20; i++) await desktop.request("screenshot", {}, BOUNDS);
  expect((await keptBytes()) - before).toBeLessThan(4 * MIB);

  const isLost = { reason: "SESSION_LOST", message: expect.stringContaining("exited with code 3") };
  driver.isMute = true;
  const waiting = expect(desktop.request("screenshot", {}, BOUNDS)).rejects.toMatchObject(isLost);
  driver.exit();
  await waiting;
  await expect(desktop.request("screenshot", {}, BOUNDS)).rejects.toMatchObject(isLost);
});

test("a desktop that keeps back the end of an answer is ended when there is no room for other answers", async () => {
  const memory = new HeldMemory(1.5 * MIB);
  const [first, second] = [await startDesktop("a", memory), await startDesktop("a", memory)];
  first.driver.keptBack = 1;
  const kept = expect(first.desktop.request("screenshot", {}, BOUNDS)).rejects.toMatchObject({
    reason: "SESSION_LOST",
    message: expect.stringContaining("no room for more"),
  });
  second.driver.keptBack = 1;
  const stop = new AbortController();
  const waiting = second.desktop.request("screenshot", {}, { ...BOUNDS, signal: stop.signal });
  await setImmediate();
  expect([first.desktop.alive, second.desktop.alive]).toEqual([false, true]);
  await kept;
  second.driver.exit();
  await expect(waiting).rejects.toMatchObject({ reason: "SESSION_LOST" });
});

test("what an adopted desktop keeps back counts for its session's owner", async () => {
  const held: [string, boolean][] = [];
  const memory = new HeldMemory();
  memory.hold = (owner, _drop, bytes) => void held.push([owner, bytes > 0]);
  const { desktop, driver } = await startDesktop("warm pool", memory);
  desktop.serve({ sessionId: "s", sandbox: sandboxOf("user") });
  driver.keptBack = 1;
  const waiting = desktop.request("screenshot", {}, BOUNDS);
  driver.exit();
  await expect(waiting).rejects.toMatchObject({ reason: "SESSION_LOST" });
  expect(held).toEqual([
    ["user", true],
    ["user", false],
  ]);
});
