import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import type { EngineEvent } from "../../../src/core/ports/engine.ts";
import { DockerEngine } from "../../../src/engine/docker/engine.ts";
import { docker, removeContainers } from "../../support/docker.ts";
import { failure, run, silent, spec, useEngine } from "./support.ts";

const { engine, instance } = useEngine();
const { engine: stranger, instance: strangerInstance } = useEngine();

afterEach(async () => {
  await removeContainers(instance);
  await removeContainers(strangerInstance);
});

/** Collects events until the test is over. */
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
  await sleep(200);
  return events;
}

describe("removing", () => {
  test("is idempotent, also at once and of what never was", async () => {
    const { ref } = await engine.create(spec());
    await Promise.all(Array.from({ length: 5 }, () => engine.remove(ref)));
    await engine.remove(ref);
    await engine.remove("0123456789ab");
    await expect(docker.getContainer(ref).inspect()).rejects.toMatchObject({ statusCode: 404 });
    expect(await engine.list()).toEqual([]);
  });

  test.each([
    [
      "busy",
      (ref: string) =>
        engine.spawn(
          ref,
          { argv: ["sh", "-c", "trap '' TERM; while :; do :; done"], stdin: false },
          { data() {}, end() {} },
        ),
    ],
    ["paused", (ref: string) => engine.pause(ref)],
    ["ended", (ref: string) => docker.getContainer(ref).kill()],
  ])("takes a sandbox away that is %s", async (_, prepare) => {
    const { ref } = await engine.create(spec());
    await prepare(ref);
    await engine.remove(ref);
    expect(await engine.list()).toEqual([]);
  });

  test("ends when its signal is aborted", async () => {
    const { ref } = await engine.create(spec());
    await failure(engine.remove(ref, AbortSignal.abort()), "CANCELED");
  });
});

describe("pausing", () => {
  test("a pause never meets a process that is being started: Docker would get stuck on both", async () => {
    const { ref } = await engine.create(spec());
    for (let round = 0; round < 25; round++) {
      const abort = new AbortController();
      const starts = [0, 5, 10, 20, 30].map(async (delayMs, index) => {
        await sleep(delayMs);
        // Every second one is given up while it begins, which keeps Docker from nothing.
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
      await sleep(round * 2);
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

  test("stops processes until resumed, and both are idempotent", async () => {
    const { ref } = await engine.create(spec());
    let lines = 0;
    const spawned = await engine.spawn(
      ref,
      { argv: ["sh", "-c", "while sleep 0.02; do echo tick; done"], stdin: false },
      { data: () => lines++, end() {} },
    );
    await expect.poll(() => lines).toBeGreaterThan(0);
    await Promise.all([engine.pause(ref), engine.pause(ref)]);
    await engine.pause(ref);
    await sleep(100);
    const atPause = lines;
    await sleep(200);
    expect(lines).toBe(atPause);
    expect(await engine.list()).toMatchObject([{ ref, state: "paused" }]);
    await failure(run(engine, ref, ["true"]), "SANDBOX_NOT_RUNNING");
    await engine.resume(ref);
    await engine.resume(ref);
    await expect.poll(() => lines).toBeGreaterThan(atPause);
    spawned.close();
  });

  test("what is gone or has ended says so", async () => {
    const { ref } = await engine.create(spec());
    await docker.getContainer(ref).kill();
    await failure(engine.pause(ref), "SANDBOX_TERMINATED");
    await failure(engine.resume(ref), "SANDBOX_TERMINATED");
    await failure(engine.usage(ref), "SANDBOX_TERMINATED");
    await engine.remove(ref);
    await failure(engine.pause(ref), "SANDBOX_TERMINATED");
    await failure(engine.usage(ref), "SANDBOX_TERMINATED");
  });
});

describe("listing", () => {
  test("shows what has ended with how, and no other instance's", async () => {
    const mine = await engine.create(spec());
    const theirs = await stranger.create(spec());
    await docker.getContainer(mine.ref).kill({ signal: "SIGTERM" });
    await docker.getContainer(mine.ref).wait();
    expect(await engine.list()).toEqual([
      { ...mine, state: "ended", end: { exitCode: 143, outOfMemory: false } },
    ]);
    expect(await stranger.list()).toEqual([theirs]);
  });

  test("an engine that starts later knows a sandbox's user", async () => {
    const { ref } = await engine.create(spec({ user: "nobody" }));
    const later = new DockerEngine({ instance, logger: silent });
    const { stdout } = await run(later, ref, ["id", "-un"]);
    expect(stdout.toString()).toBe("nobody\n");
    await later.close();
  });
});

describe("events", () => {
  test("tell of an end and of a removal, of this instance only", async () => {
    const events = await collectEvents();
    const { ref, sandboxId } = await engine.create(spec());
    const theirs = await stranger.create(spec());
    await stranger.remove(theirs.ref);
    await docker.getContainer(ref).kill({ signal: "SIGTERM" });
    await expect
      .poll(() => events)
      .toEqual([{ type: "ended", ref, sandboxId, end: { exitCode: 143, outOfMemory: false } }]);
    await docker.getContainer(ref).remove();
    await expect.poll(() => events.slice(1)).toEqual([{ type: "removed", ref, sandboxId }]);
  });

  test("tell of a forced removal as one, not as an end by itself", async () => {
    const events = await collectEvents();
    const { ref, sandboxId } = await engine.create(spec());
    await docker.getContainer(ref).remove({ force: true });
    await expect.poll(() => events).toEqual([{ type: "removed", ref, sandboxId }]);
  });

  test("tell that memory ran out where that ended the sandbox", async () => {
    const events = await collectEvents();
    const { ref } = await engine.create(spec({ resources: { ...spec().resources, memoryBytes: 32 << 20 } }));
    // Memory that no process owns runs out, and the main processes are the first that the kernel picks.
    const hog =
      "for pid in 1 $(cat /proc/1/task/1/children); do [ $pid = $$ ] || echo 1000 >/proc/$pid/oom_score_adj; done; head -c 60M /dev/zero >/dev/shm/x";
    await run(engine, ref, ["sh", "-c", hog]).catch(() => {});
    await expect
      .poll(() => events, { timeout: 5000 })
      .toMatchObject([{ type: "ended", ref, end: { exitCode: 137, outOfMemory: true } }]);
    expect(await engine.list()).toMatchObject([
      { ref, state: "ended", end: { exitCode: 137, outOfMemory: true } },
    ]);
  });

  test("do not blame memory for an end that came later", async () => {
    const events = await collectEvents();
    const { ref } = await engine.create(spec({ resources: { ...spec().resources, memoryBytes: 32 << 20 } }));
    expect((await run(engine, ref, ["python3", "-c", "bytearray(1 << 30)"])).exitCode).toBe(137);
    await docker.getContainer(ref).kill({ signal: "SIGTERM" });
    await expect
      .poll(() => events)
      .toMatchObject([{ type: "ended", end: { exitCode: 143, outOfMemory: false } }]);
  });

  test("end quietly when their signal is aborted, also before the first", async () => {
    for (const signal of [AbortSignal.abort(), AbortSignal.timeout(50)]) {
      const seen: EngineEvent[] = [];
      for await (const event of engine.events(signal)) seen.push(event);
      expect(seen).toEqual([]);
    }
  });
});

test("usage tells memory, CPU time and processes", async () => {
  const { ref } = await engine.create(spec());
  const before = await engine.usage(ref);
  const spawned = await engine.spawn(
    ref,
    { argv: ["python3", "-c", "x = bytearray(64 << 20)\nwhile True: pass"], stdin: false },
    { data() {}, end() {} },
  );
  await sleep(1000);
  const after = await engine.usage(ref);
  expect(after.pids).toBe(before.pids + 1);
  expect(after.memoryBytes - before.memoryBytes).toBeGreaterThan(60 << 20);
  expect(after.memoryBytes).toBeLessThan(128 << 20);
  expect(after.cpuNanos - before.cpuNanos).toBeGreaterThan(100e6);
  spawned.close();
  await engine.remove(ref);
});

test("info tells who the engine is and what it can do", async () => {
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
  });
});
