import { describe, expect, test } from "vitest";
import { BerthError } from "../../../../src/base/errors.ts";
import { StartGate } from "../../../../src/engine/docker/start-gate.ts";
import { settled } from "../../../support/manual-clock.ts";

describe("the gate between starts and pauses", () => {
  test("admits starts concurrently, and a pause only when all of them are over", async () => {
    const gate = new StartGate();
    const order: string[] = [];
    const leaveFirst = await gate.enter("a");
    const leaveSecond = await gate.enter("a");
    const pause = gate.closed("a", async () => {
      order.push("paused");
    });
    const third = gate.enter("a").then((leave) => {
      order.push("third");
      leave();
    });
    order.push("first over");
    leaveFirst();
    await Promise.resolve();
    order.push("second over");
    leaveSecond();
    await Promise.all([pause, third]);
    expect(order).toEqual(["first over", "second over", "paused", "third"]);
  });

  test("is separate for each container", async () => {
    const gate = new StartGate();
    await gate.enter("a");
    await expect(gate.closed("b", async () => "done")).resolves.toBe("done");
  });

  test("reopens after a failed pause", async () => {
    const gate = new StartGate();
    const failed = gate.closed("a", () => Promise.reject(new Error("no")));
    await expect(failed).rejects.toThrow("no");
    (await gate.enter("a"))();
  });

  test("a start that is aborted while it waits leaves nothing behind", async () => {
    const gate = new StartGate();
    const { promise: pausing, resolve: paused } = Promise.withResolvers<void>();
    const pause = gate.closed("a", () => pausing);
    const giveUp = new AbortController();
    const start = gate.enter("a", giveUp.signal);
    giveUp.abort(new BerthError("CANCELED", "given up"));
    await expect(start).rejects.toMatchObject({ reason: "CANCELED" });
    paused();
    await pause;
    await expect(gate.closed("a", async () => "again")).resolves.toBe("again");
  });

  test("a pause that is aborted while it waits for starts leaves nothing behind", async () => {
    const gate = new StartGate();
    const leave = await gate.enter("a");
    const giveUp = new AbortController();
    let outcome: unknown = "waits";
    const paused = gate.closed("a", async () => "paused", giveUp.signal);
    const over = paused.catch((error: BerthError) => (outcome = error.reason));
    giveUp.abort(new BerthError("CANCELED", "given up"));
    await settled();
    expect(outcome).toBe("CANCELED");
    leave();
    await over;
    await expect(gate.closed("a", async () => "again")).resolves.toBe("again");
  });

  test("takes almost no time per start", async () => {
    const gate = new StartGate();
    // A lock that counts down permits one by one would take minutes for this.
    for (let i = 0; i < 200_000; i++) (await gate.enter("a"))();
    await expect(gate.closed("a", async () => "done")).resolves.toBe("done");
  });
});
