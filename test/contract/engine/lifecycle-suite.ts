import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import type { EngineEvent } from "../../../src/engine/port.ts";
import { FORK_BOMB, failure, run, sh } from "../../integration/engine/docker/support.ts";
import { eventually } from "../../support/eventually.ts";
import { scaled } from "../../support/scale.ts";
import { type Subject, testUnless } from "./subject.ts";

const POLL = { timeout: 60_000 };
const NOBODY_LISTENS = { data() {}, end() {} };

/** Tests of a sandbox's lifecycle that every engine must pass. */
export function lifecycleSuite(subject: Subject): void {
  afterEach(async () => {
    for (const { engine } of [subject, { engine: subject.stranger }]) {
      for (const { ref } of await engine.list()) await engine.remove(ref);
    }
  });

  /** Collects events until the test is over. */
  const collectEvents = async (): Promise<EngineEvent[]> => {
    const events: EngineEvent[] = [];
    const abort = new AbortController();
    const collecting = (async () => {
      for await (const event of subject.engine.events(abort.signal)) events.push(event);
    })();
    onTestFinished(async () => {
      abort.abort();
      await collecting;
    });
    // A remote engine has to learn about the listener first. Then it reports all that happens.
    const { engine } = subject;
    await eventually(async () => {
      const { ref } = await engine.create(subject.spec());
      await engine.remove(ref);
      const reported = () => events.some((event) => event.ref === ref);
      return eventually(reported, { timeoutMs: 2_000 }).catch(() => false);
    });
    events.length = 0;
    return events;
  };

  describe("a new sandbox", () => {
    test("is described as it is listed", async () => {
      const { engine } = subject;
      const spec = subject.spec({ sandboxId: "named", generation: 3, owner: "olga", user: subject.user });
      const created = await engine.create(spec);
      const { isolation } = await engine.info();
      expect(created).toMatchObject({
        sandboxId: "named",
        generation: 3,
        owner: "olga",
        state: "running",
        isolation: subject.isolation ?? isolation,
      });
      expect(created.user).toBe(subject.user);
      expect(await engine.list()).toEqual([created]);
      expect(await subject.stranger.list()).toEqual([]);
    });

    test("takes ids and environments of any kind", async () => {
      const { engine } = subject;
      const env = { EMPTY: "", QUOTED: 'it\'s "$x" `y`', LINES: "a\nb", "odd.name": "1", IFS: "/" };
      const created = await engine.create(subject.spec({ sandboxId: "ünï/../ code 🎉", env }));
      expect(created.sandboxId).toBe("ünï/../ code 🎉");
      const seen = (await run(engine, created.ref, ["cat", "/proc/self/environ"])).stdout.toString();
      for (const [name, value] of Object.entries(env)) expect(seen.split("\0")).toContain(`${name}=${value}`);
    });

    test.each(["/workspace", "/deep/er/dir with 'quotes' \"$(touch x)\" -n", "/-rf", "/etc", "/"])(
      "has the working dir %j",
      async (workingDir) => {
        const { ref } = await subject.engine.create(subject.spec({ workingDir }));
        const program = ["sh", "-c", '[ -d "$0" ] && echo exists; [ -w "$0" ] && echo writable', workingDir];
        const found = (await run(subject.engine, ref, program)).stdout.toString();
        expect(found).toContain("exists");
        if (!["/etc", "/"].includes(workingDir)) expect(found).toContain("writable");
      },
    );

    testUnless("pids", subject, "is bounded as its spec says", async () => {
      const { engine } = subject;
      const { ref } = await engine.create(subject.spec());
      const bomb = await engine.spawn(ref, { argv: FORK_BOMB, stdin: true }, NOBODY_LISTENS);
      await expect.poll(async () => (await engine.usage(ref)).pids, POLL).toBeGreaterThan(40);
      expect((await engine.usage(ref)).pids).toBeLessThanOrEqual(64);
      bomb.closeStdin();
      expect(await bomb.wait()).not.toBe(0);
      await expect.poll(async () => (await engine.usage(ref)).pids, POLL).toBeLessThan(10);
      expect((await run(engine, ref, ["true"])).exitCode).toBe(0);
    });

    testUnless(
      subject.exceptions.memory ? "memory" : "oom",
      subject,
      "ends a process that takes too much memory, and stays",
      async () => {
        const { ref } = await subject.engine.create(subject.spec());
        const { exitCode } = await run(subject.engine, ref, ["python3", "-c", "bytearray(1 << 30)"]);
        expect(exitCode).toBe(137);
        expect((await subject.engine.list())[0]?.state).toBe("running");
      },
    );
  });

  describe("a failed create leaves nothing behind:", () => {
    test.each(["nosuchuser", "nobody:nosuchgroup", "no;body"])("the unknown user %j", async (user) => {
      const error = await failure(subject.engine.create(subject.spec({ user })), "INVALID_ARGUMENT");
      expect(error.metadata).toEqual({ field: "spec.user" });
      expect(await subject.engine.list()).toEqual([]);
    });

    test.each(["/etc/passwd/below", "/proc/self/fd/8", "/proc/nosuch"])(
      "the working dir %s",
      async (workingDir) => {
        const error = await failure(subject.engine.create(subject.spec({ workingDir })), "INVALID_ARGUMENT");
        expect(error.message).toContain("mkdir");
        expect(await subject.engine.list()).toEqual([]);
      },
    );

    test("an image that does not exist", async () => {
      const image = "registry.invalid/nosuch:1";
      await failure(
        subject.engine.ensureImage(image, { signal: AbortSignal.timeout(120_000) }),
        "IMAGE_UNAVAILABLE",
      );
      await failure(subject.engine.create(subject.spec({ image })), "IMAGE_UNAVAILABLE");
      expect(await subject.engine.list()).toEqual([]);
    });

    test("a runtime that is not allowed", async () => {
      const error = await subject.engine.create(subject.spec({ runtime: "runc" })).catch((thrown) => thrown);
      expect(["NOT_ALLOWED", "UNSUPPORTED"]).toContain(error.reason);
      expect(await subject.engine.list()).toEqual([]);
    });

    test.each([0, 1, 3, 6, 10, 20, 50])("an abort after %i ms", async (delayMs) => {
      const abort = new AbortController();
      const creating = subject.engine.create(subject.spec(), abort.signal);
      const timer = setTimeout(() => abort.abort(), delayMs);
      const outcome = await creating.then(
        ({ ref }) => subject.engine.remove(ref).then(() => "created"),
        (error: { reason: string }) => error.reason,
      );
      clearTimeout(timer);
      expect(["created", "CANCELED"]).toContain(outcome);
      await eventually(async () => (await subject.engine.list()).length === 0);
    });
  });

  describe("removing", () => {
    test("is idempotent, also concurrently and for a sandbox that never existed", async () => {
      const { engine } = subject;
      const { ref } = await engine.create(subject.spec());
      await Promise.all(Array.from({ length: 5 }, () => engine.remove(ref)));
      await engine.remove(ref);
      await engine.remove("0123456789ab");
      expect(await engine.list()).toEqual([]);
    });

    test("removes a sandbox that is busy or has ended", async () => {
      const { engine } = subject;
      const busy = await engine.create(subject.spec());
      const argv = ["sh", "-c", "trap '' TERM; while :; do :; done"];
      await engine.spawn(busy.ref, { argv, stdin: false }, NOBODY_LISTENS);
      const ended = await engine.create(subject.spec());
      await subject.signalMain(ended.ref, "SIGKILL");
      await engine.remove(busy.ref);
      await engine.remove(ended.ref);
      expect(await engine.list()).toEqual([]);
    });

    test("ends when its signal is aborted", async () => {
      const { ref } = await subject.engine.create(subject.spec());
      await failure(subject.engine.remove(ref, AbortSignal.abort()), "CANCELED");
    });
  });

  describe("pausing", () => {
    testUnless("pause", subject, "stops processes until resumed, and both are idempotent", async () => {
      const { engine } = subject;
      const { ref } = await engine.create(subject.spec());
      let lines = 0;
      const argv = ["sh", "-c", "while sleep 0.02; do echo tick; done"];
      const spawned = await engine.spawn(ref, { argv, stdin: false }, { data: () => lines++, end() {} });
      await expect.poll(() => lines, POLL).toBeGreaterThan(0);
      await Promise.all([engine.pause(ref), engine.pause(ref)]);
      await engine.pause(ref);
      // Earlier output may still be on its way. A command that still runs would write 15 more lines.
      let atPause: number;
      let waits = 0;
      do {
        atPause = lines;
        await sleep(300);
      } while (lines > atPause && ++waits < 100);
      expect(lines).toBe(atPause);
      expect(await engine.list()).toMatchObject([{ ref, state: "paused" }]);
      expect(await engine.isPaused(ref)).toBe(true);
      await failure(run(engine, ref, ["true"]), "SANDBOX_NOT_RUNNING");
      await engine.resume(ref);
      await engine.resume(ref);
      expect(await engine.isPaused(ref)).toBe(false);
      await expect.poll(() => lines, POLL).toBeGreaterThan(atPause);
      await engine.pause(ref);
      await engine.remove(ref);
      expect(await engine.list()).toEqual([]);
      spawned.close();
    });

    testUnless("pause", subject, "and a start of a process keep out of each other's way", async () => {
      const { engine } = subject;
      const { ref } = await engine.create(subject.spec());
      for (let round = 0; round < 10; round += scaled(1, 2)) {
        const starts = Promise.allSettled(
          [0, 3, 9].map(async (delayMs) => {
            await sleep(delayMs);
            const argv = ["true"];
            return (await engine.spawn(ref, { argv, stdin: false }, NOBODY_LISTENS)).wait();
          }),
        );
        await sleep(round);
        await engine.pause(ref);
        await engine.resume(ref);
        for (const outcome of await starts) {
          if (outcome.status === "fulfilled") expect(outcome.value).toBe(0);
          else expect(outcome.reason).toMatchObject({ reason: "SANDBOX_NOT_RUNNING" });
        }
      }
    });

    testUnless("pause", subject, "what is gone or has ended says so", async () => {
      const { engine } = subject;
      const { ref } = await engine.create(subject.spec());
      await subject.signalMain(ref, "SIGKILL");
      await eventually(async () => (await engine.list())[0]?.state === "ended");
      await failure(engine.pause(ref), "SANDBOX_TERMINATED");
      await failure(engine.resume(ref), "SANDBOX_TERMINATED");
      await failure(engine.usage(ref), "SANDBOX_TERMINATED");
      await engine.remove(ref);
      await failure(engine.pause(ref), "SANDBOX_TERMINATED");
      await failure(engine.usage(ref), "SANDBOX_TERMINATED");
    });
  });

  describe("events", () => {
    test("report ends and removals, of this engine's sandboxes only", async () => {
      const { engine, stranger } = subject;
      const events = await collectEvents();
      const { ref, sandboxId } = await engine.create(subject.spec());
      const theirs = await stranger.create(subject.spec());
      await stranger.remove(theirs.ref);
      await subject.signalMain(ref, "SIGTERM");
      const end = { exitCode: 143, outOfMemory: false };
      await expect.poll(() => events, POLL).toEqual([{ type: "ended", ref, sandboxId, end }]);
      expect(await engine.list()).toMatchObject([{ ref, state: "ended", end }]);
      await engine.remove(ref);
      await expect.poll(() => events.slice(1), POLL).toEqual([{ type: "removed", ref, sandboxId }]);
    });

    test("report a removal as a removal, not as an end", async () => {
      const events = await collectEvents();
      const { ref, sandboxId } = await subject.engine.create(subject.spec());
      await subject.engine.remove(ref);
      await expect.poll(() => events, POLL).toEqual([{ type: "removed", ref, sandboxId }]);
    });

    test("end without an error when their signal is aborted, also before the first event", async () => {
      for (const signal of [AbortSignal.abort(), AbortSignal.timeout(50)]) {
        const seen: EngineEvent[] = [];
        for await (const event of subject.engine.events(signal)) seen.push(event);
        expect(seen).toEqual([]);
      }
    });
  });

  testUnless("usage", subject, "usage reports memory, CPU time and processes", async () => {
    const { engine } = subject;
    const { ref } = await engine.create(subject.spec());
    const { idleProcesses = 2, processesEach = 1 } = subject;
    await expect.poll(async () => (await engine.usage(ref)).pids, POLL).toBe(idleProcesses);
    const before = await engine.usage(ref);
    const program = "x = bytearray(64 << 20)\nwhile True: pass";
    const spawned = await engine.spawn(
      ref,
      { argv: ["python3", "-c", program], stdin: false },
      NOBODY_LISTENS,
    );
    await expect
      .poll(async () => (await engine.usage(ref)).memoryBytes - before.memoryBytes, POLL)
      .toBeGreaterThan(60 << 20);
    await expect
      .poll(async () => (await engine.usage(ref)).cpuNanos - before.cpuNanos, POLL)
      .toBeGreaterThan(100e6);
    await expect.poll(async () => (await engine.usage(ref)).pids, POLL).toBe(idleProcesses + processesEach);
    expect((await engine.usage(ref)).memoryBytes - before.memoryBytes).toBeLessThan(128 << 20);
    spawned.close();
  });

  testUnless("pids", subject, "bounds can be changed while it runs", async () => {
    const { engine } = subject;
    const { ref } = await engine.create(subject.spec());
    await engine.setResources(ref, { ...subject.spec().resources, pidsLimit: 32 });
    // Its children stay until the end of its stdin, however slowly they start.
    const argv = ["sh", "-c", "exec 3<&0; for i in $(seq 100); do cat <&3 & done; wait"];
    const bomb = await engine.spawn(ref, { argv, stdin: true }, NOBODY_LISTENS);
    expect(await bomb.wait()).not.toBe(0);
    bomb.closeStdin();
    // The bomb's children may exist for a moment longer.
    const alive = () => sh(engine, ref, "echo alive").catch(({ reason }) => reason);
    await expect.poll(alive, POLL).toBe("alive\n");
  });

  test("info describes the engine and its capabilities", async () => {
    const info = await subject.engine.info();
    expect(info.version).toMatch(/^\d+\./);
    expect(info.cpus).toBeGreaterThan(0);
    expect(info.memoryBytes).toBeGreaterThan(1 << 28);
    expect(info.capabilities.pidsLimit).toBe(subject.pidsLimit ?? true);
    expect(info.capabilities.pause).toBe(subject.exceptions.pause === undefined);
    expect(info.capabilities.memoryLimit).toBe(subject.exceptions.memory === undefined);
  });
}
