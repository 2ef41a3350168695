import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
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

test("timers do not wait for something else to happen", async () => {
  // A server keeps this program running, and nothing else happens in it.
  const program = `
    import net from "node:net";
    import { SystemClock } from ${JSON.stringify(new URL("../../../src/base/clock.ts", import.meta.url).href)};
    const clock = new SystemClock();
    let left = 20;
    const next = () => (left-- > 0 ? clock.setTimer(10, next) : process.exit(0));
    net.createServer().listen(0, "127.0.0.1", next);
    setTimeout(() => process.exit(1), 30_000);`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program], { stdio: "inherit" });
  onTestFinished(() => void child.kill("SIGKILL"));
  expect(await once(child, "exit")).toEqual([0, null]);
});

test("a timer may be longer than Node's own", async () => {
  let calls = 0;
  const cancel = clock.setTimer(2 ** 32, () => calls++);
  await sleep(20);
  cancel();
  expect(calls).toBe(0);
});
