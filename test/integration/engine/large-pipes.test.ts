import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import type { Engine } from "../../../src/engine/port.ts";
import { useBubblewrap } from "./bubblewrap/support.ts";
import { sh, spec, useEngine } from "./docker/support.ts";

const pipesDir = await mkdtemp(path.join(tmpdir(), "berth-large-"));
afterAll(() => rm(pipesDir, { recursive: true, force: true }));
const ENGINES: readonly { name: string; engine: Engine }[] = [
  { name: "docker", engine: useEngine({ pipesDir }).engine },
  { name: "bubblewrap", engine: useBubblewrap() },
];

const AHEAD = 400_000;

describe.each(ENGINES)("on $name", ({ engine }) => {
  test("a stdin that carries much takes more than 64 KiB ahead of its reader", async () => {
    const { ref } = await engine.create(spec());
    /** How much a process finds in its stdin, after it has read so many bytes. */
    const ahead = async (first: number): Promise<number> => {
      const count = "dd bs=2M count=1 2>/tmp/found >/dev/null; cat >/dev/null";
      const waits = "echo; while [ ! -e /tmp/go ]; do sleep 0.05; done; rm -f /tmp/go";
      const argv = ["/bin/sh", "-c", `head -c ${first} >/dev/null; ${waits}; ${count}`];
      const read = Promise.withResolvers<void>();
      const spawned = await engine.spawn(
        ref,
        { argv, stdin: true },
        { data: () => read.resolve(), end() {} },
      );
      await spawned.writeStdin(Buffer.alloc(first));
      await read.promise;
      const write = spawned.writeStdin(Buffer.alloc(AHEAD));
      await sh(engine, ref, ": >/tmp/go");
      await write;
      spawned.closeStdin();
      expect(await spawned.wait()).toBe(0);
      spawned.close();
      return Number.parseInt(await sh(engine, ref, "grep bytes /tmp/found"), 10);
    };
    expect(await ahead(1_000)).toBe(64 * 1024);
    expect(await ahead(1_000_000)).toBe(AHEAD);
    await engine.remove(ref);
  });
});
