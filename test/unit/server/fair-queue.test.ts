import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { FairQueue, type QueuedCall } from "../../../src/server/fair-queue.ts";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance", "setTimeout", "clearTimeout", "setImmediate"] });
});
afterEach(() => {
  vi.useRealTimers();
});

/** A call, and its state. */
class FakeCall implements QueuedCall {
  readonly method;
  readonly principal;
  readonly #controller = new AbortController();
  readonly signal = this.#controller.signal;
  state = "new";

  constructor(tenant: string, method = "short") {
    this.method = method;
    this.principal = { owner: tenant, tenant, tokenId: "", tokenHash: undefined, scope: "user" } as const;
  }

  enter(queue: FairQueue, how: "enter" | "again" | "answer" = "enter"): this {
    const entering = queue[how](this);
    this.state = entering === undefined ? "began" : "waits";
    entering?.then(
      () => {
        this.state = "began";
      },
      () => {
        this.state = "gave up";
      },
    );
    return this;
  }

  abort(): void {
    this.#controller.abort(new Error("the client is gone"));
  }
}

const calls = (tenant: string, count: number, method?: string) =>
  Array.from({ length: count }, () => new FakeCall(tenant, method));
const began = (list: readonly FakeCall[]) => list.filter(({ state }) => state === "began").length;
/** Runs one turn of the event loop. */
const turn = () => vi.advanceTimersByTimeAsync(0);

test("a single tenant has many calls in their turn, and others wait behind them", async () => {
  const queue = new FairQueue();
  const many = calls("ann", 100).map((call) => call.enter(queue));
  expect(began(many)).toBe(32);
  for (const call of many.slice(0, 5)) queue.ended(call);
  await turn();
  expect(began(many)).toBe(37);
  expect(many.slice(0, 37).every(({ state }) => state === "began")).toBe(true);
});

test("with another tenant only one call is in its turn, and the other's call never waits", async () => {
  const queue = new FairQueue();
  for (const call of calls("bob", 1)) queue.ended(call.enter(queue));
  const flood = calls("ann", 50).map((call) => call.enter(queue));
  expect(began(flood)).toBe(1);
  for (let i = 0; i < 20; i++) {
    const [one] = calls("bob", 1);
    expect(one?.enter(queue).state).toBe("began");
    if (one) queue.ended(one);
  }
  expect(began(flood)).toBe(1);
});

test("the next call starts after the event loop has turned", async () => {
  const queue = new FairQueue();
  for (const call of calls("bob", 1)) queue.ended(call.enter(queue));
  const flood = calls("ann", 10).map((call) => call.enter(queue));
  for (const call of flood.slice(0, 1)) queue.ended(call);
  await Promise.resolve();
  expect(began(flood)).toBe(1);
  await turn();
  expect(began(flood)).toBe(2);
});

test("a turn ends after some time, so that calls that only wait do not keep others from starting", async () => {
  const queue = new FairQueue();
  for (const call of calls("bob", 1)) queue.ended(call.enter(queue));
  const slow = calls("ann", 5).map((call) => call.enter(queue));
  await vi.advanceTimersByTimeAsync(9);
  expect(began(slow)).toBe(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(began(slow)).toBe(2);
  await vi.advanceTimersByTimeAsync(30);
  expect(began(slow)).toBe(5);
});

test("work that continues after its turn waits for another turn, behind the waiting calls", async () => {
  const queue = new FairQueue();
  for (const call of calls("bob", 1)) queue.ended(call.enter(queue));
  const [stream, other] = calls("ann", 2).map((call) => call.enter(queue));
  if (!stream || !other) throw new Error("there are two");
  expect(stream.enter(queue, "again").state).toBe("began");
  expect(other.state).toBe("waits");
  await vi.advanceTimersByTimeAsync(10);
  expect(other.state).toBe("began");
  const [later] = calls("ann", 1).map((call) => call.enter(queue));
  expect(stream.enter(queue, "again").state).toBe("waits");
  await vi.advanceTimersByTimeAsync(10);
  expect([later?.state, stream.state]).toEqual(["began", "waits"]);
  await vi.advanceTimersByTimeAsync(10);
  expect(stream.state).toBe("began");
});

test("a later turn ends with what is sent at once, so that streams that wait delay nobody", async () => {
  const queue = new FairQueue();
  for (const call of calls("bob", 1)) queue.ended(call.enter(queue));
  const streams = calls("ann", 3).map((call) => call.enter(queue));
  await vi.advanceTimersByTimeAsync(30);
  for (const stream of streams) stream.enter(queue, "again");
  for (const [at, stream] of streams.entries()) {
    expect(began(streams)).toBe(at + 1);
    queue.rest(stream);
    // More follows at once.
    expect(stream.enter(queue, "again").state).toBe("began");
    await turn();
    expect(began(streams)).toBe(at + 1);
    queue.rest(stream);
    // The next one starts after the event loop has turned once more.
    await vi.advanceTimersByTimeAsync(1);
  }
  const [next] = calls("ann", 1).map((call) => call.enter(queue));
  expect(next?.state).toBe("began");
});

test.each(["first", "engine"])("a turn does not end with what is sent if it is the %s one", async (kind) => {
  const queue = new FairQueue(new Map([["engine", "engine"]]));
  for (const call of calls("bob", 1)) queue.ended(call.enter(queue));
  const [stream] = calls("ann", 1, kind).map((call) => call.enter(queue));
  if (!stream) throw new Error("there is one");
  if (kind === "engine") await vi.advanceTimersByTimeAsync(1_000);
  stream.enter(queue, "again");
  queue.rest(stream);
  await turn();
  const [next] = calls("ann", 1, kind).map((call) => call.enter(queue));
  expect(next?.state).toBe("waits");
});

test("a call that gives up leaves its place to the next", async () => {
  const queue = new FairQueue();
  for (const call of calls("bob", 1)) queue.ended(call.enter(queue));
  const [first, second, third, fourth] = calls("ann", 4).map((call) => call.enter(queue));
  second?.abort();
  await turn();
  expect(second?.state).toBe("gave up");
  if (first) queue.ended(first);
  // Its turn starts at the moment at which it gives up.
  vi.advanceTimersByTime(0);
  third?.abort();
  await turn();
  expect([third?.state, fourth?.state]).toEqual(["began", "waits"]);
  await vi.advanceTimersByTimeAsync(10);
  expect(fourth?.state).toBe("began");
});

test("a tenant without calls for two seconds no longer counts", async () => {
  const queue = new FairQueue();
  for (const call of calls("bob", 1)) queue.ended(call.enter(queue));
  await vi.advanceTimersByTimeAsync(1_900);
  expect(began(calls("ann", 3).map((call) => call.enter(queue)))).toBe(1);
  await vi.advanceTimersByTimeAsync(200);
  expect(began(calls("ann", 50).map((call) => call.enter(queue)))).toBe(32);
});

test.each(["engine", "tools"] as const)(
  "calls that keep the %s at work have turns of their own: fewer, and longer",
  async (work) => {
    const queue = new FairQueue(new Map([["create", work]]));
    for (const call of calls("bob", 1)) queue.ended(call.enter(queue));
    const creates = calls("ann", 3, "create").map((call) => call.enter(queue));
    expect(began(creates)).toBe(1);
    expect(began(calls("ann", 3).map((call) => call.enter(queue)))).toBe(1);
    await vi.advanceTimersByTimeAsync(900);
    for (const call of calls("bob", 1)) queue.ended(call.enter(queue));
    expect(began(creates)).toBe(1);
    const [first] = creates;
    if (first) queue.ended(first);
    await turn();
    expect(began(creates)).toBe(2);
    await vi.advanceTimersByTimeAsync(1000);
    expect(began(creates)).toBe(3);
  },
);

test("the answer of a create does not wait for other creates, and keeps no place", async () => {
  const queue = new FairQueue(new Map([["create", "engine"]]));
  for (const call of calls("bob", 1)) queue.ended(call.enter(queue));
  const [first, second, third] = calls("ann", 3, "create").map((call) => call.enter(queue));
  await vi.advanceTimersByTimeAsync(1000);
  expect([second?.state, third?.state]).toEqual(["began", "waits"]);
  expect(first?.enter(queue, "answer").state).toBe("began");
  const [short] = calls("ann", 1).map((call) => call.enter(queue));
  expect(short?.state).toBe("waits");
  if (first) queue.ended(first);
  await turn();
  expect(short?.state).toBe("began");
});

test("lists do not wait for creates of the same tenant", () => {
  const queue = new FairQueue(
    new Map([
      ["create", "engine"],
      ["list", "tools"],
    ]),
  );
  for (const call of calls("bob", 1)) queue.ended(call.enter(queue));
  expect(began(calls("ann", 3, "create").map((call) => call.enter(queue)))).toBe(1);
  expect(began(calls("ann", 3, "list").map((call) => call.enter(queue)))).toBe(1);
});

test("calls without a tenant, such as probes, start at once", () => {
  const queue = new FairQueue();
  const { signal } = new AbortController();
  const probe = { principal: undefined, signal, method: "short" };
  expect(queue.enter(probe)).toBe(undefined);
  expect(queue.again(probe)).toBe(undefined);
});
