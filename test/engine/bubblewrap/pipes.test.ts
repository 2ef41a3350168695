import { closeSync, fstatSync, readlinkSync, readSync, writeSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { sandboxIdentity } from "../../../src/engine/bubblewrap/identity.ts";
import { Pipes } from "../../../src/engine/bubblewrap/pipes.ts";

const identity = sandboxIdentity();
const pipes = new Pipes(identity);
beforeAll(() => pipes.prepare());
afterAll(() => pipes.close());

test("pipes are real ones, each its own, of the sandboxes' user", async () => {
  const seen = new Set<string>();
  for (let i = 0; i < 400; i++) {
    const { child, parent } = await (i % 2 ? pipes.fromChild() : pipes.toChild());
    const name = readlinkSync(`/proc/self/fd/${child}`);
    expect(name).toMatch(/^pipe:\[\d+\]$/);
    expect(readlinkSync(`/proc/self/fd/${parent}`)).toBe(name);
    expect(fstatSync(child).uid).toBe(identity.uid);
    seen.add(name);
    const [writer, reader] = i % 2 ? [child, parent] : [parent, child];
    writeSync(writer, `${i}`);
    closeSync(writer);
    const buffer = Buffer.alloc(8);
    expect(buffer.toString("latin1", 0, readSync(reader, buffer))).toBe(`${i}`);
    expect(readSync(reader, buffer)).toBe(0);
    closeSync(reader);
  }
  // A number comes again only once its pipe is gone.
  expect(seen.size).toBeGreaterThan(300);
});

test("many may be asked for at once", async () => {
  const all = await Promise.all(Array.from({ length: 100 }, () => pipes.fromChild()));
  const names = new Set(all.map(({ parent }) => readlinkSync(`/proc/self/fd/${parent}`)));
  expect(names.size).toBe(100);
  for (const { child, parent } of all) for (const fd of [child, parent]) closeSync(fd);
});
