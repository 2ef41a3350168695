import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { SystemClock } from "../../../src/base/clock.ts";
import { connection, halt } from "../../support/halt.ts";

const clock = new SystemClock();

describe("a timer that is due after the program was halted", () => {
  test("comes after what has arrived meanwhile", async () => {
    const [near, far] = await connection();
    const order: string[] = [];
    near.on("data", () => order.push("data"));
    const over = Promise.withResolvers<void>();
    clock.setTimer(20, () => {
      order.push("timer");
      over.resolve();
    });
    far.write("x");
    halt(100);
    await over.promise;
    expect(order).toEqual(["data", "timer"]);
  });

  test("may be cancelled by that", async () => {
    const [near, far] = await connection();
    let calls = 0;
    const cancel = clock.setTimer(20, () => calls++);
    const arrived = once(near.on("data", cancel), "data");
    far.write("x");
    halt(100);
    await arrived;
    await sleep(20);
    expect(calls).toBe(0);
  });
});

test("a timer may be longer than Node's own", async () => {
  let calls = 0;
  const cancel = clock.setTimer(2 ** 32, () => calls++);
  await sleep(20);
  cancel();
  expect(calls).toBe(0);
});
