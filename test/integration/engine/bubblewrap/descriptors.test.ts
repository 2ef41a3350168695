import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, test } from "vitest";
import { childrenOf, readProcess } from "../../../../src/engine/outside/host-process.ts";
import type { HostMount } from "../../../../src/engine/port.ts";
import { takeDescriptors } from "../../../support/no-descriptors.ts";
import { run, spec } from "../docker/support.ts";
import { useBubblewrap, useDirectory } from "./support.ts";

const directory = useDirectory();
const engine = useBubblewrap({ allowedHostPaths: [directory] });
const MOUNT: HostMount = {
  ...{ kind: "host", hostPath: directory, target: "/mnt/data", readOnly: false, giveToUser: false },
};

/** What was thrown where nobody could catch it: the end of a service. */
const uncaught: unknown[] = [];
beforeEach(() => process.setUncaughtExceptionCaptureCallback((error) => uncaught.push(error.message)));
afterEach(() => {
  process.setUncaughtExceptionCaptureCallback(null);
  expect(uncaught.splice(0)).toEqual([]);
});

/** What becomes of an action while the service may open only a few files: `done`, or the reason of its failure. */
async function outcomeWith(free: number, act: () => Promise<unknown>): Promise<unknown> {
  const end = takeDescriptors(free);
  try {
    return await act().then(
      () => "done",
      (error) => error.reason ?? error,
    );
  } finally {
    end();
  }
}

test("a create with a mount fails by itself, however few descriptors are left", async () => {
  const create = () => engine.create(spec({ mounts: [MOUNT] }));
  await create();
  const outcomes = new Set<unknown>();
  for (let free = 0; free <= 16; free++) outcomes.add(await outcomeWith(free, create));
  expect([...outcomes]).toEqual(["TOO_MANY_OPERATIONS", "done"]);
});

/** Processes that descend from this one. */
function descendants(pid = process.pid): number[] {
  const children = childrenOf(pid).filter((child) => readProcess(child) !== undefined);
  return children.flatMap((child) => [child, ...descendants(child)]);
}

test("starts that fail for lack of descriptors leave no processes", async () => {
  const { ref } = await engine.create(spec());
  const start = () => run(engine, ref, ["/bin/sh", "-c", ":"]);
  const create = async () => engine.remove((await engine.create(spec())).ref);
  await start();
  await create();
  const before = { all: descendants().length, inside: (await engine.usage(ref)).pids };
  for (const act of [start, create]) {
    let outcome: unknown;
    for (let free = 0; outcome !== "done"; free++) {
      outcome = await outcomeWith(free, act);
      expect(["TOO_MANY_OPERATIONS", "done"]).toContain(outcome);
    }
  }
  await expect.poll(() => descendants().length).toBeLessThanOrEqual(before.all);
  await expect.poll(async () => (await engine.usage(ref)).pids).toBe(before.inside);
  expect(await engine.list()).toHaveLength(1);
});

test("a port in a sandbox that cannot be opened for lack of descriptors is not a capability that is missing", async () => {
  const { ref } = await engine.create(spec());
  const listen = async () => {
    const server = await engine.listen(ref, 8080);
    await promisify(server.close.bind(server))();
  };
  let outcome: unknown;
  for (let free = 0; outcome !== "done"; free++) {
    outcome = await outcomeWith(free, listen);
    expect(["TOO_MANY_OPERATIONS", "done"]).toContain(outcome);
  }
});

test("a command that runs while no descriptor is left is not taken for ended", async () => {
  const { ref } = await engine.create(spec());
  const argv = ["/bin/sh", "-c", "read x; exit 7"];
  const spawned = await engine.spawn(ref, { argv, stdin: true }, { data() {}, end() {} });
  const ended = spawned.wait();
  const end = takeDescriptors(0);
  // It is looked for once a second, and believed to be gone the second time.
  const early = await Promise.race([ended, sleep(2_500, "still running")]);
  end();
  expect(early).toBe("still running");
  spawned.closeStdin();
  expect(await ended).toBe(7);
});
