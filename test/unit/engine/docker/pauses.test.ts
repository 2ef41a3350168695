import { expect, onTestFinished, test, vi } from "vitest";
import { translateError } from "../../../../src/engine/docker/errors.ts";
import { Pauses } from "../../../../src/engine/docker/pauses.ts";

/** A refusal of Docker, as the engine sees it. */
function refusal(text: string): Error {
  const error = Object.assign(new Error(text), { statusCode: 409, json: { message: text } });
  return translateError(error, "pausing a container");
}

/** The part of a daemon that pauses, which can lose track of a container's state, as after a late event. */
class Daemon {
  running = true;
  /** The container's state according to the daemon. */
  paused = false;
  /** The container's real state. */
  frozen = false;
  readonly calls: { readonly paused: boolean; readonly at: number }[] = [];
  thaws = 0;
  /** How many more times the kernel does not freeze the container in time. */
  slowFreezes = 0;

  readonly pauses = new Pauses({
    call: async (_ref, paused) => {
      this.calls.push({ paused, at: performance.now() });
      if (!this.running) throw refusal("container x is not running");
      if (this.paused === paused) throw refusal(`container x is ${paused ? "already" : "not"} paused`);
      if (paused && this.slowFreezes-- > 0)
        throw refusal("Cannot pause container x: OCI runtime pause failed: unable to freeze: unknown");
      this.paused = paused;
      this.frozen = paused;
    },
    state: async () => ({ Running: this.running, Paused: this.paused }),
    thaw: async () => {
      this.thaws++;
      this.frozen = false;
    },
  });
}

test.concurrent("pauses and resumes, and both are idempotent", async () => {
  const daemon = new Daemon();
  await daemon.pauses.set("x", true);
  await daemon.pauses.set("x", true);
  expect(daemon.frozen).toBe(true);
  await daemon.pauses.set("x", false);
  await daemon.pauses.set("x", false);
  expect(daemon.frozen).toBe(false);
  expect(daemon.thaws).toBe(0);
});

test.concurrent("a change waits a while after the opposite one, so that a late event does not overwrite it", async () => {
  const daemon = new Daemon();
  await daemon.pauses.set("x", true);
  await daemon.pauses.set("x", false);
  const [first, second] = daemon.calls;
  expect((second?.at ?? 0) - (first?.at ?? 0)).toBeGreaterThan(290);
  const stop = AbortSignal.timeout(20);
  await expect(daemon.pauses.set("x", true, stop)).rejects.toThrow();
  expect(daemon.calls).toHaveLength(2);
});

test.concurrent("a frozen container that Docker believes to be running is thawed", async () => {
  const daemon = new Daemon();
  await daemon.pauses.set("x", true);
  // The late event of an earlier resume.
  daemon.paused = false;
  await daemon.pauses.set("x", false);
  expect(daemon).toMatchObject({ frozen: false, thaws: 1 });
  await daemon.pauses.set("x", false);
  expect(daemon.thaws).toBe(1);
});

test.concurrent("a container that is not frozen in time is frozen by a later attempt", async () => {
  const daemon = new Daemon();
  daemon.slowFreezes = 3;
  await daemon.pauses.set("x", true);
  expect(daemon.frozen).toBe(true);
  expect(daemon.calls).toHaveLength(4);
  await daemon.pauses.set("x", false);
  daemon.slowFreezes = Number.POSITIVE_INFINITY;
  await expect(daemon.pauses.set("x", true)).rejects.toMatchObject({ reason: "ENGINE_UNAVAILABLE" });
  await expect(daemon.pauses.set("x", true, AbortSignal.timeout(100))).rejects.toThrow(/cancel/i);
});

test("a pause that the kernel refuses slowly is given up after some seconds", async () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  onTestFinished(() => void vi.useRealTimers());
  let calls = 0;
  const slow = new Pauses({
    call: async () => {
      calls++;
      vi.advanceTimersByTime(6_000);
      throw refusal("timeout of 10s reached waiting for the cgroup to freeze");
    },
    state: async () => ({ Running: true, Paused: false }),
    thaw: async () => {},
  });
  await expect(slow.set("x", true)).rejects.toMatchObject({ reason: "ENGINE_UNAVAILABLE" });
  expect(calls).toBe(2);
});

test.concurrent("other refusals are passed on", async () => {
  const daemon = new Daemon();
  daemon.running = false;
  await expect(daemon.pauses.set("x", true)).rejects.toMatchObject({ reason: "SANDBOX_TERMINATED" });
  const broken = new Pauses({
    call: async () => {
      throw refusal("cannot freeze");
    },
    state: async () => ({ Running: true, Paused: false }),
    thaw: async () => {},
  });
  await expect(broken.set("x", true)).rejects.toThrow("status 409");
});
