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
