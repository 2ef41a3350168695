import { create } from "@bufbuild/protobuf";
import { createContextValues, type HandlerContext } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { CreateRunRequestSchema, RunService } from "../../../gen/ts/berth/v1/run_pb.js";
import { requestKey } from "../../../src/rpc/validate/fields.ts";
import { type Call, Calls, setCall } from "../../../src/server/call.ts";
import { ReceiveBudget } from "../../../src/server/limits.ts";
import { RequestLog } from "../../../src/state/request-log.ts";
import { ServiceTime } from "../../../src/state/service-time.ts";
import { newWorld } from "../sandboxes/support.ts";

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

test("one owner's requests leave room for those of others, and for its own small ones", () => {
  const budget = new ReceiveBudget(1000 * KIB);
  expect(fill(budget, "a")).toBe(90);
  expect(() => budget.open("a").charge(4 * KIB)).not.toThrow();
  expect(() => budget.open("a").charge(20 * KIB)).toThrow(
    expect.objectContaining({ reason: "TOO_MANY_OPERATIONS", retryAfterMs: 1000 }),
  );
  expect(fill(budget, "b")).toBe(9);
});

test("what a request holds is given back when its work ends, however that ends", async () => {
  const budget = new ReceiveBudget(100 * KIB, 0);
  const open = () => {
    const account = budget.open("a");
    account.charge(60 * KIB);
    return account;
  };
  const work = Promise.withResolvers<string>();
  const first = open();
  const held = first.hold(() => work.promise);
  for (const _ of [1, 2]) first.close();
  expect(budget.heldBytes).toBe(60 * KIB);
  work.resolve("done");
  expect(await held).toBe("done");
  expect(budget.heldBytes).toBe(0);
  const second = open();
  const failing = second.hold(() => Promise.reject(new Error("on purpose")));
  await expect(failing).rejects.toThrow("on purpose");
  expect(budget.heldBytes).toBe(60 * KIB);
  for (const _ of [1, 2]) second.close();
  expect(budget.heldBytes).toBe(0);
});

test("the message of a request with an id counts once, while its call waits and when only its work has it", async () => {
  const budget = new ReceiveBudget(1_000_000, 0);
  const { clock, store } = newWorld();
  const requests = new RequestLog(ServiceTime.resume(clock, store.time), store.requests);
  const account = budget.open("ann");
  account.charge(60 * KIB);
  const values = createContextValues();
  setCall(values, { account } as Partial<Call> as Call);
  const request = create(CreateRunRequestSchema, { requestId: "a", nextStepPrompt: "x".repeat(60 * KIB) });
  const context = {
    values,
    method: RunService.method.createRun,
  } as Partial<HandlerContext> as HandlerContext;
  const key = requestKey(context, request);
  const leaving = new AbortController();
  const work = Promise.withResolvers<void>();
  const call = requests.run(key, leaving.signal, () => work.promise);
  expect(budget.heldBytes).toBe(60 * KIB);
  leaving.abort();
  await expect(call).rejects.toThrow();
  account.close();
  expect(budget.heldBytes).toBe(60 * KIB);
  work.resolve();
  await expect.poll(() => budget.heldBytes).toBe(0);
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
