import { expect, test } from "vitest";
import type { OutputStream } from "../../../src/engine/port.ts";
import type { LeasedSandbox } from "../../../src/sandboxes/lease.ts";
import type { ProgramHost } from "../../../src/sessions/types/program.ts";
import { Desktop } from "../../../src/sessions/types/vm/desktop.ts";
import { keptBytes } from "../../support/kept-bytes.ts";

const MIB = 1024 * 1024;
const SPEC = { env: {}, secretEnv: {}, resources: { memoryBytes: MIB } };
const SANDBOX = { user: "", spec: SPEC } as unknown as LeasedSandbox;
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

test("a desktop keeps nothing of the answers that it gave, and its end fails requests", async () => {
  const { promise: end, resolve: exit } = Promise.withResolvers<{ kind: "exited"; code: number }>();
  let hasEnded = false;
  let say: (stream: OutputStream, chunk: Buffer) => void = () => {};
  const job = {
    end,
    hold: () => undefined,
    // A driver that answers each line, and skips the modules that come first.
    writeStdin: async (data: Buffer) => {
      if (hasEnded || !data.subarray(-1).equals(Buffer.from("\n"))) return;
      const { id, op } = JSON.parse(data.toString());
      const header = Buffer.from(JSON.stringify({ id, data: { display: ":1", authority: "/x" } }));
      const payload = Buffer.alloc(op === "start" ? 0 : MIB);
      const lengths = Buffer.alloc(8);
      lengths.writeUInt32BE(header.length, 0);
      lengths.writeUInt32BE(payload.length, 4);
      say("stdout", Buffer.concat([lengths, header, payload]));
    },
  };
  const start = async (_sandbox: unknown, _request: unknown, output: typeof say) => {
    say = output;
    return job;
  };
  const host = { runner: { start } } as unknown as ProgramHost;
  const desktop = await Desktop.start(host, SANDBOX, PLACE, NEVER);
  const before = await keptBytes();
  for (let i = 0; i < 20; i++) await desktop.request("screenshot", {}, BOUNDS);
  expect((await keptBytes()) - before).toBeLessThan(4 * MIB);

  const isLost = {
    reason: "SESSION_LOST",
    message: expect.stringContaining("exited with code 3"),
  };
  hasEnded = true;
  const waiting = expect(desktop.request("screenshot", {}, BOUNDS)).rejects.toMatchObject(isLost);
  exit({ kind: "exited", code: 3 });
  await waiting;
  await expect(desktop.request("screenshot", {}, BOUNDS)).rejects.toMatchObject(isLost);
});
