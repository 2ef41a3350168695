import type { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import type { BerthError } from "../../../../src/base/errors.ts";
import { DockerEngine } from "../../../../src/engine/docker/engine.ts";
import type { EngineEvent } from "../../../../src/engine/port.ts";
import { docker, pauseContainer, removeContainers } from "../../../support/docker.ts";
import { eventually } from "../../../support/eventually.ts";
import { scaled } from "../../../support/scale.ts";
import { run, silent, spec, useEngine } from "./support.ts";

const { engine, instance } = useEngine();
const POLL = { timeout: 60_000 };
const ROUNDS = scaled(25, 8);

// What every engine must pass is in test/contract/engine.
afterEach(() => removeContainers(instance));

/** Collects events until the end of the test. */
async function collectEvents(): Promise<EngineEvent[]> {
  const events: EngineEvent[] = [];
  const abort = new AbortController();
  const collecting = (async () => {
    for await (const event of engine.events(abort.signal)) events.push(event);
  })();
  onTestFinished(async () => {
    abort.abort();
    await collecting;
  });
  // The daemon has to learn about the listener first. Then it reports all that happens.
  await eventually(async () => {
    const { ref } = await engine.create(spec());
    await engine.remove(ref);
    const reported = () => events.some((event) => event.ref === ref);
    return eventually(reported, { timeoutMs: 2_000 }).catch(() => false);
  });
  events.length = 0;
  return events;
}

test("a pause never overlaps the start of a process: Docker would get stuck on both", async () => {
  const { ref } = await engine.create(spec());
  for (let round = 0; round < ROUNDS; round++) {
    const abort = new AbortController();
    const starts = [0, 5, 10, 20, 30].map(async (delayMs, index) => {
      await sleep(delayMs);
      // Every second one is abandoned while it starts, which does not stop Docker.
      const signal = index % 2 === 0 ? undefined : abort.signal;
      const spawned = await engine.spawn(
        ref,
        { argv: ["true"], stdin: false },
        { data() {}, end() {} },
        signal,
      );
      return spawned.wait();
    });
    const outcomes = Promise.allSettled(starts);
    await sleep(round * (50 / ROUNDS));
    abort.abort();
    await engine.pause(ref);
    await engine.resume(ref);
    for (const outcome of await outcomes) {
      if (outcome.status === "fulfilled") expect(outcome.value).toBe(0);
      else
        expect(outcome.reason).toMatchObject({
          reason: expect.stringMatching(/CANCELED|SANDBOX_NOT_RUNNING/),
        });
    }
  }
  await engine.remove(ref);
});

test("a container that Docker's own pause froze during a start can still be removed", async () => {
  for (const delayMs of [4, 8, 12, 16]) {
    const { ref } = await engine.create(spec());
    expect(await engine.outside(ref)).toBeDefined();
    const starts = [0, 5, 10].map(async (afterMs) => {
      await sleep(afterMs);
      const spawned = await engine.spawn(ref, { argv: ["true"], stdin: false }, { data() {}, end() {} });
      return spawned.wait();
    });
    const outcomes = Promise.allSettled(starts);
    await sleep(delayMs);
    await pauseContainer(docker.getContainer(ref));
    const removing = engine.remove(ref).then(() => "removed");
    expect(await Promise.race([removing, sleep(120_000, "stuck", { ref: false })])).toBe("removed");
    await outcomes;
  }
});

test("a container that is killed for its removal ends before Docker is asked to remove it", async () => {
  const patient = new DockerEngine({ instance, logger: silent, timeouts: { endMs: 60_000 } });
  onTestFinished(() => patient.close());
  const { ref } = await patient.create(spec());
  expect(await patient.outside(ref)).toBeDefined();
  const actions: string[] = [];
  const stream = (await docker.getEvents({ filters: { container: [ref] } })) as Readable;
  onTestFinished(() => void stream.destroy());
  stream.on("data", (chunk: Buffer) => {
    actions.push(...[...chunk.toString().matchAll(/"Action":"(\w+)"/g)].map(([, action = ""]) => action));
  });
  await patient.remove(ref);
  await expect.poll(() => actions, POLL).toContain("destroy");
  expect(actions).toContain("die");
  // Docker would start a program for it.
  expect(actions).not.toContain("kill");
});

test("a limit of memory below what a sandbox uses is impossible for it, or in force", async () => {
  const { ref } = await engine.create(spec());
  const argv = ["python3", "-c", "x = b'x' * (60 << 20); print(flush=True); input()"];
  const holds = Promise.withResolvers<void>();
  const sink = { data: () => holds.resolve(), end() {} };
  const holder = await engine.spawn(ref, { argv, stdin: true }, sink);
  await holds.promise;
  const changing = engine.setResources(ref, { ...spec().resources, memoryBytes: 32 << 20 });
  // With version 2 of control groups, the kernel kills what uses too much.
  const outcome = await changing.then(
    () => "in force",
    (error: BerthError) => error.reason,
  );
  expect(outcome).toMatch(/^(UNSUPPORTED|in force)$/);
  holder.close();
});

test("an engine that starts later knows a sandbox's user", async () => {
  const { ref } = await engine.create(spec({ user: "nobody" }));
  const later = new DockerEngine({ instance, logger: silent });
  const { stdout } = await run(later, ref, ["id", "-un"]);
  expect(stdout.toString()).toBe("nobody\n");
  await later.close();
});

describe("events", () => {
  test("report a forced removal as a removal, not as an end", async () => {
    const events = await collectEvents();
    const { ref, sandboxId } = await engine.create(spec());
    await docker.getContainer(ref).remove({ force: true });
    await expect.poll(() => events, POLL).toEqual([{ type: "removed", ref, sandboxId }]);
  });

  test("report an end by out of memory", async () => {
    const events = await collectEvents();
    const { ref } = await engine.create(spec({ resources: { ...spec().resources, memoryBytes: 32 << 20 } }));
    // Memory that no process owns runs out, and the main processes are the first that the kernel kills.
    const hog =
      "for pid in 1 $(cat /proc/1/task/1/children); do [ $pid = $$ ] || echo 1000 >/proc/$pid/oom_score_adj; done; head -c 60M /dev/zero >/dev/shm/x";
    await run(engine, ref, ["sh", "-c", hog]).catch(() => {});
    await expect
      .poll(() => events, POLL)
      .toMatchObject([{ type: "ended", ref, end: { exitCode: 137, outOfMemory: true } }]);
    expect(await engine.list()).toMatchObject([
      { ref, state: "ended", end: { exitCode: 137, outOfMemory: true } },
    ]);
  });

  test("do not blame memory for a later end", async () => {
    const events = await collectEvents();
    const { ref } = await engine.create(spec({ resources: { ...spec().resources, memoryBytes: 32 << 20 } }));
    expect((await run(engine, ref, ["python3", "-c", "bytearray(1 << 30)"])).exitCode).toBe(137);
    await docker.getContainer(ref).kill({ signal: "SIGTERM" });
    await expect
      .poll(() => events, POLL)
      .toMatchObject([{ type: "ended", end: { exitCode: 143, outOfMemory: false } }]);
  });
});

test("info reports what the engine is and can do", async () => {
  const info = await engine.info();
  expect(info.version).toMatch(/^\d+\./);
  expect(info.isolation).toBe("CONTAINER");
  expect(info.cpus).toBeGreaterThan(0);
  expect(info.memoryBytes).toBeGreaterThan(1 << 28);
  expect(info.capabilities).toMatchObject({
    pause: true,
    memoryLimit: true,
    cpuLimit: true,
    pidsLimit: true,
    systemCallFilter: true,
  });
});
