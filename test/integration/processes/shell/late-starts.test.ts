import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { BubblewrapEngine } from "../../../../src/engine/bubblewrap/engine.ts";
import type { Engine, OutsideControl, ProcessName } from "../../../../src/engine/port.ts";
import type { Job, JobRequest } from "../../../../src/processes/shell/job.ts";
import { Lanes } from "../../../../src/processes/shell/lanes.ts";
import { PlainRunner } from "../../../../src/processes/shell/plain-job.ts";
import type { LeasedSandbox } from "../../../../src/sandboxes/lease.ts";
import { TEST_IMAGE } from "../../../support/images.ts";
import { failure, sh, silent, spec, useEngine } from "../../engine/docker/support.ts";

const pipesDir = mkdtempSync(path.join(tmpdir(), "berth-pipes-"));
afterAll(() => rmSync(pipesDir, { recursive: true, force: true }));
const bubblewrap = new BubblewrapEngine({ logger: silent, image: TEST_IMAGE });
afterAll(() => bubblewrap.close());

/** A command that ends only if it is ended. Its stdin stays open. */
const command: JobRequest = {
  argv: ["sleep", "4321"],
  ...{ env: {}, workingDir: "/", user: "", stdin: true, terminal: undefined },
};
/** Prints the processes that run the command, or wait for the go-ahead for it. */
const FIND = "grep -l 43[2]1 /proc/[0-9]*/cmdline 2>/dev/null || :";

describe.each<[string, Engine]>([
  ["docker with pipes", useEngine({ pipesDir }).engine],
  ["docker", useEngine().engine],
  ["bubblewrap", bubblewrap],
])("on %s", (_, engine) => {
  /** A sandbox whose shells get what is written to them only when `go` is called. */
  async function slowSandbox() {
    const { ref } = await engine.create(spec());
    onTestFinished(() => engine.remove(ref));
    const [written, gone] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const spawn: Engine["spawn"] = async (...args) => {
      const spawned = await engine.spawn(...args);
      const write = spawned.writeStdin.bind(spawned);
      spawned.writeStdin = async (data) => {
        written.resolve();
        await gone.promise;
        return write(data);
      };
      return spawned;
    };
    const sandbox = {
      ref,
      sandboxId: "sbx",
      user: "",
      owner: "ann",
      spec: spec(),
    } as unknown as LeasedSandbox;
    return { ref, sandbox, spawn, written: written.promise, go: gone.resolve };
  }

  /** Starts the command for a caller that leaves when it was passed to a shell. Returns when the start was given up. */
  async function leave(lanes: Lanes, sandbox: LeasedSandbox, written: Promise<void>, request = command) {
    const caller = new AbortController();
    const starting: Promise<Job> = lanes.start(sandbox, request, () => {}, caller.signal);
    await written;
    caller.abort();
    await failure(starting, "CANCELED");
  }

  test.each(["outside", "inside"])(
    "a command that its own shell starts after its start was given up is ended, from %s",
    async (from) => {
      const { ref, sandbox, spawn, written, go } = await slowSandbox();
      let isGivenUp = false;
      const outside: Engine["outside"] = async () =>
        from === "inside" && isGivenUp ? undefined : engine.outside(ref);
      const slow = { spawn, outside } as Engine;
      const lanes = new Lanes(slow, new PlainRunner(slow), { spare: 1, max: 4, idleMs: 60_000 }, silent);
      await leave(lanes, sandbox, written);
      isGivenUp = true;
      expect(await sh(engine, ref, FIND)).not.toBe("");
      go();
      await expect.poll(() => sh(engine, ref, FIND), { timeout: 30_000 }).toBe("");
    },
  );

  test("a command that a lane starts after its start was given up is ended", async () => {
    const { ref, sandbox, spawn, written, go } = await slowSandbox();
    const view = (await engine.outside(ref)) as OutsideControl;
    const killed: ProcessName[] = [];
    const outside = async () => ({
      killTree: async (leader: ProcessName): Promise<void> => {
        // The lane cannot be killed when the start is given up.
        if (killed.push(leader) > 1) await view.killTree(leader);
      },
      isHeldUp: async () => false,
      obstacle: async () => undefined,
      seclusion: view.seclusion.bind(view),
    });
    const { undumpable } = engine;
    const slow = { undumpable, spawn, outside } as unknown as Engine;
    const lanes = new Lanes(slow, new PlainRunner(slow), { spare: 1, max: 4, idleMs: 60_000 }, silent);
    onTestFinished(() => lanes.closeAll());
    lanes.open(sandbox);
    await leave(lanes, sandbox, written, { ...command, stdin: false });
    go();
    await expect.poll(() => killed.length, { timeout: 30_000 }).toBe(2);
    await expect.poll(() => sh(engine, ref, FIND), { timeout: 30_000 }).toBe("");
    expect(await view.tree(killed[0] as ProcessName)).toEqual([]);
  });
});
