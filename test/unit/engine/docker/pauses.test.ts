import { expect, test } from "vitest";
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

  readonly pauses = new Pauses({
    call: async (_ref, paused) => {
      this.calls.push({ paused, at: performance.now() });
      if (!this.running) throw refusal("container x is not running");
      if (this.paused === paused) throw refusal(`container x is ${paused ? "already" : "not"} paused`);
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

test("pauses and resumes, and both are idempotent", async () => {
  const daemon = new Daemon();
  await daemon.pauses.set("x", true);
  await daemon.pauses.set("x", true);
  expect(daemon.frozen).toBe(true);
  await daemon.pauses.set("x", false);
  await daemon.pauses.set("x", false);
  expect(daemon.frozen).toBe(false);
  expect(daemon.thaws).toBe(0);
});

test("a change waits a while after the opposite one, so that a late event does not overwrite it", async () => {
  const daemon = new Daemon();
  await daemon.pauses.set("x", true);
  await daemon.pauses.set("x", false);
  const [first, second] = daemon.calls;
  expect((second?.at ?? 0) - (first?.at ?? 0)).toBeGreaterThan(290);
  const stop = AbortSignal.timeout(20);
  await expect(daemon.pauses.set("x", true, stop)).rejects.toThrow();
  expect(daemon.calls).toHaveLength(2);
});

test("a frozen container that Docker believes to be running is thawed", async () => {
  const daemon = new Daemon();
  await daemon.pauses.set("x", true);
  // The late event of an earlier resume.
  daemon.paused = false;
  await daemon.pauses.set("x", false);
  expect(daemon).toMatchObject({ frozen: false, thaws: 1 });
  await daemon.pauses.set("x", false);
  expect(daemon.thaws).toBe(1);
});

test("a pause is repeated while the runtime cannot freeze the container", async () => {
  const text = "Cannot pause container x: OCI runtime pause failed: unable to freeze: unknown";
  const unable = Object.assign(new Error(text), { statusCode: 500, json: { message: text } });
  let calls = 0;
  const call = async () => {
    if (++calls < 4) throw translateError(unable, "pausing a container");
  };
  const pauses = new Pauses({
    call,
    state: async () => ({ Running: true, Paused: false }),
    thaw: async () => {},
  });
  await pauses.set("x", true);
  expect(calls).toBe(4);
  calls = Number.NEGATIVE_INFINITY;
  await expect(pauses.set("y", true, AbortSignal.timeout(100))).rejects.toThrow();
});

test("other refusals are passed on", async () => {
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
