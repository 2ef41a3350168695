import { afterEach, describe, expect, test } from "vitest";
import { settled } from "../../support/manual-clock.ts";
import { newManager, newWorld, OWNER, type World } from "./support.ts";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const never = new AbortController().signal;
const stops: (() => void)[] = [];

afterEach(() => {
  for (const stop of stops.splice(0)) stop();
});

/** The next run of the service in a world. The timers of the previous run are dropped. */
async function run(world: World) {
  for (const stop of stops.splice(0)) stop();
  world.clock.forgetTimers();
  const { manager, monitor, state } = await newManager({ cleanupIntervalMs: HOUR }, world);
  state.start();
  await manager.recover();
  manager.start();
  await settled();
  stops.push(() => monitor.stop());
  const stateOf = (sandboxId: string): string => manager.get({ owner: OWNER, sandboxId }).state;
  return { manager, state, stateOf };
}

describe.each([
  ["a day forward", DAY],
  ["a day back", -DAY],
  ["ten years back", -3650 * DAY],
])("with the wall clock set %s", (_, jump) => {
  test("no sandbox expires early or never, in one run", async () => {
    const world = newWorld();
    const { manager, stateOf } = await run(world);
    await manager.create(OWNER, { idleTimeoutMs: HOUR }, { sandboxId: "idle", signal: never });
    await manager.create(
      OWNER,
      { maxLifetimeMs: 2 * HOUR, idleTimeoutMs: DAY },
      { sandboxId: "life", signal: never },
    );
    world.clock.setWall(jump);
    await world.clock.advance(HOUR - 1);
    expect([stateOf("idle"), stateOf("life")]).toEqual(["RUNNING", "RUNNING"]);
    await world.clock.advance(1_000);
    expect([stateOf("idle"), stateOf("life")]).toEqual(["TERMINATED", "RUNNING"]);
    world.clock.setWall(-jump);
    await world.clock.advance(HOUR);
    expect(stateOf("life")).toBe("TERMINATED");
  });

  test.each(["while it runs", "while it is down"])("nor over a restart, where it is set %s", async (when) => {
    const world = newWorld();
    const first = await run(world);
    await first.manager.create(OWNER, { idleTimeoutMs: HOUR }, { sandboxId: "idle", signal: never });
    await first.manager.create(OWNER, { idleTimeoutMs: DAY }, { sandboxId: "ended", signal: never });
    await first.manager.delete({ owner: OWNER, sandboxId: "ended" }, 0);
    if (when === "while it runs") world.clock.setWall(jump);
    await world.clock.advance(HOUR / 4);
    // The service is killed, without a shutdown.
    world.clock.forgetTimers();
    if (when === "while it is down") world.clock.setWall(jump);
    await world.clock.advance(HOUR / 4);
    const second = await run(world);
    expect([second.stateOf("idle"), second.stateOf("ended")]).toEqual(["RUNNING", "TERMINATED"]);
    await world.clock.advance(HOUR / 2 - 1);
    expect(second.stateOf("idle")).toBe("RUNNING");
    await world.clock.advance(1_000);
    expect(second.stateOf("idle")).toBe("TERMINATED");
    // Ended sandboxes are readable for a day, and then also removed from the store.
    await world.clock.advance(DAY - 2 * HOUR);
    expect(second.stateOf("ended")).toBe("TERMINATED");
    await world.clock.advance(3 * HOUR);
    expect(() => second.stateOf("ended")).toThrow("There is no sandbox");
    expect(() => second.stateOf("idle")).toThrow("There is no sandbox");
    await world.clock.advance(1_000);
    expect(world.store.sandboxes.load()).toEqual([]);
  });
});

test("after a restart of the machine the wall clock determines how long it took", async () => {
  const world = newWorld();
  const first = await run(world);
  await first.manager.create(OWNER, { idleTimeoutMs: HOUR }, { sandboxId: "idle", signal: never });
  await world.clock.advance(HOUR / 4);
  world.clock.forgetTimers();
  await world.clock.advance(HOUR / 4);
  world.clock.bootId = "boot-2";
  const second = await run(world);
  await world.clock.advance(HOUR / 2 - 60_000);
  expect(second.stateOf("idle")).toBe("RUNNING");
  await world.clock.advance(120_000);
  expect(second.stateOf("idle")).toBe("TERMINATED");
});
