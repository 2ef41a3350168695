import { expect, test } from "vitest";
import { TurnShare } from "../../../src/base/turn-share.ts";

const WORKERS = 50;
const PIECES = 6;

function work(ms: number): void {
  for (const end = performance.now() + ms; performance.now() < end; );
}

test("work that is already in memory does not block the event loop, and all workers get an equal share", async () => {
  const share = new TurnShare();
  const done = Array.from({ length: WORKERS }, () => 0);
  const perTurn: number[] = [];
  let apart = 0;
  let sum = 0;
  const look = (): void => {
    const now = done.reduce((all, one) => all + one, 0);
    perTurn.push(now - sum);
    sum = now;
    apart = Math.max(apart, Math.max(...done) - Math.min(...done));
    if (sum < WORKERS * PIECES) setImmediate(look);
  };
  setImmediate(look);
  const run = async (worker: number): Promise<void> => {
    while ((done[worker] ?? 0) < PIECES) {
      const turn = share.enter();
      if (turn) await turn;
      work(0.5);
      done[worker] = (done[worker] ?? 0) + 1;
      // As sending the result would.
      await undefined;
    }
  };
  await Promise.all(done.map((_, worker) => run(worker)));
  // A turn contains 5 ms of such work.
  expect(Math.max(...perTurn)).toBeLessThanOrEqual(12);
  expect(apart).toBeLessThanOrEqual(1);
});

test("what callers do once they are woken together does not block the event loop", async () => {
  const share = new TurnShare();
  const perTurn: number[] = [];
  let done = 0;
  let before = 0;
  const look = (): void => {
    perTurn.push(done - before);
    before = done;
    if (done < WORKERS) setImmediate(look);
  };
  setImmediate(look);
  const wakes: (() => void)[] = [];
  const callers = Array.from({ length: WORKERS }, async () => {
    await new Promise<void>((resolve) => wakes.push(resolve));
    // As between what wakes it and what takes long.
    await undefined;
    await undefined;
    work(0.5);
    done++;
  });
  await share.wakeEach(wakes);
  await Promise.all(callers);
  await new Promise((resolve) => setImmediate(resolve));
  expect(Math.max(...perTurn)).toBeLessThanOrEqual(12);
});
