import { expect, test } from "vitest";
import { Turns } from "../../../../src/base/turns.ts";
import type { ProcessName } from "../../../../src/engine/port.ts";
import { LanePool } from "../../../../src/processes/shell/lane-pool.ts";
import { PrestartedShell } from "../../../../src/processes/shell/prestarted-shells.ts";
import type { LeasedSandbox } from "../../../../src/sandboxes/lease.ts";
import { useBubblewrap } from "../../engine/bubblewrap/support.ts";
import { silent, spec } from "../../engine/docker/support.ts";

// A stopped shell does not notice that its stdin has ended.
const SIGSTOP = 19;
const engine = useBubblewrap();

async function createSandbox() {
  const wanted = spec();
  const { ref, user } = await engine.create(wanted);
  const sandbox = { ...wanted, ref, user, spec: wanted } as unknown as LeasedSandbox;
  const stop = async (shell: ProcessName): Promise<void> => {
    const outside = await engine.outside(ref);
    expect(await outside?.signalGroup(shell, SIGSTOP)).toBe(true);
  };
  return { sandbox, stop };
}

test("the pipes of a prestarted shell that nobody needs any more count as orphaned if it does not end", async () => {
  const { sandbox, stop } = await createSandbox();
  const shell = await PrestartedShell.open(engine, sandbox, new AbortController().signal);
  await stop(shell);
  shell.retire();
  await expect.poll(() => engine.figures().orphanedPipes, { timeout: 20_000 }).toBe(1);
});

test("the pipes of a lane that nobody needs any more count as orphaned if it does not end", async () => {
  const { sandbox, stop } = await createSandbox();
  const settings = { spare: 0, max: 16, idleMs: 500 };
  const pool = new LanePool(engine, sandbox, settings, silent, new Turns(16));
  const lane = await pool.take(new AbortController().signal);
  if (lane === undefined) throw new Error("there is no lane");
  await stop(lane);
  pool.giveBack(lane);
  await expect.poll(() => engine.figures().orphanedPipes, { timeout: 20_000 }).toBe(1);
  pool.close();
});
