import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { giveBack } from "../../../../src/base/lent-bytes.ts";
import { openFileOf } from "../../../../src/engine/outside/open-file.ts";

const SCOPE = { pids: async () => [process.pid], holds: (pid: number) => pid === process.pid };

test("memory that was given back is read into again, and no other", async () => {
  const directory = mkdtempSync(path.join(tmpdir(), "berth-test-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const name = path.join(directory, "file");
  writeFileSync(name, "aabbccddee");
  const descriptor = openSync(name, "r");
  onTestFinished(() => closeSync(descriptor));
  const file = await openFileOf(SCOPE, process.pid, descriptor);
  onTestFinished(() => file?.close());
  const read = async (at: number, maxBytes = 2): Promise<Buffer> =>
    (await file?.read(at, maxBytes, AbortSignal.timeout(60_000))) ?? Buffer.alloc(0);
  const first = await read(0);
  const second = await read(2);
  expect(second.buffer).not.toBe(first.buffer);
  expect(giveBack(first)).toBe(true);
  // Only once: it may be lent again by now.
  expect(giveBack(first)).toBe(false);
  const third = await read(4);
  expect(third.buffer).toBe(first.buffer);
  // What was given back has room for two.
  expect(giveBack(third)).toBe(true);
  expect((await read(6, 4)).toString()).toBe("ddee");
  expect((await read(4)).toString()).toBe("cc");
  expect(second.toString()).toBe("bb");
});
