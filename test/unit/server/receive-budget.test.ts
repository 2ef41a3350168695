import { expect, test } from "vitest";
import { type Call, Calls } from "../../../src/server/call.ts";
import { ReceiveBudget } from "../../../src/server/limits.ts";

const KIB = 1024;

/** Takes parts of 10 KiB as long as it can. Returns how many. */
function fill(budget: ReceiveBudget, owner: string): number {
  const account = budget.open(owner);
  for (let parts = 0; ; parts++) {
    try {
      account.charge(10 * KIB);
    } catch {
      return parts;
    }
  }
}

test("one owner's requests leave room for those of others, and for its own small ones", async () => {
  const budget = new ReceiveBudget(1000 * KIB);
  expect(fill(budget, "a")).toBe(90);
  expect(() => budget.open("a").charge(4 * KIB)).not.toThrow();
  await expect(budget.hold("a", 20 * KIB, async () => {})).rejects.toMatchObject({
    reason: "TOO_MANY_OPERATIONS",
    retryAfterMs: 1000,
  });
  expect(fill(budget, "b")).toBe(9);
});

test("what a request holds is given back when its work ends, however that ends", async () => {
  const budget = new ReceiveBudget(100 * KIB, 0);
  const work = Promise.withResolvers<string>();
  const held = budget.hold("a", 60 * KIB, () => work.promise);
  expect(budget.heldBytes).toBe(60 * KIB);
  work.resolve("done");
  expect(await held).toBe("done");
  const failing = budget.hold("a", 60 * KIB, () => Promise.reject(new Error("on purpose")));
  await expect(failing).rejects.toThrow("on purpose");
  const account = budget.open("a");
  account.charge(60 * KIB);
  for (const _ of [1, 2]) account.close();
  expect(budget.heldBytes).toBe(0);
});

test("what nobody has read of a request does not count twice once somebody reads it", () => {
  const receiving = new ReceiveBudget(1_000_000, 0);
  const calls = new Calls([]);
  const ended: unknown[] = [];
  const callOf = (unreadBytes: number): Call =>
    ({
      owner: "ann",
      unreadBytes,
      abort: (reason) => ended.push(reason),
      dropRequest() {},
    }) as Partial<Call> as Call;
  calls.begin(callOf(100_000));
  calls.countUnread(receiving);
  expect(receiving.heldBytes).toBe(0);
  expect(ended).toEqual([]);
  calls.begin(callOf(2_000_000));
  calls.countUnread(receiving);
  expect(ended).toMatchObject([{ reason: "TOO_MANY_OPERATIONS" }]);
});
