import { describe, expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { Database } from "../../../src/state/database.ts";
import { type Hold, RequestLog } from "../../../src/state/request-log.ts";
import { type AnswerBounds, type RequestBounds, RequestStore } from "../../../src/state/request-store.ts";
import {
  ANSWERS_LAST_SCHEMA,
  MIGRATIONS,
  migrate,
  REQUEST_COUNTS_SCHEMA,
} from "../../../src/state/schema.ts";
import { ServiceTime } from "../../../src/state/service-time.ts";
import { ManualClock, settled } from "../../support/manual-clock.ts";
import { memoryStore } from "../../support/memory-store.ts";

const DAY = 24 * 3_600_000;
const never = new AbortController().signal;
const key = (requestId: string, fingerprint = "same") => ({
  owner: "me",
  method: "Create",
  requestId,
  fingerprint,
});

function newLog(limits?: RequestBounds, bounds?: AnswerBounds) {
  const clock = new ManualClock();
  const store = memoryStore();
  const log = new RequestLog(ServiceTime.resume(clock, store.time), store.requests, limits, bounds);
  let runs = 0;
  const count = async (): Promise<number> => ++runs;
  return { clock, log, store, count, runs: () => runs };
}

test("the same request is carried out once, and all its callers get the answer", async () => {
  const { log, count, runs } = newLog();
  const together = await Promise.all(Array.from({ length: 10 }, () => log.run(key("a"), never, count)));
  expect(together).toEqual(Array.from({ length: 10 }, () => 1));
  expect(await log.run(key("a"), never, count)).toBe(1);
  expect(runs()).toBe(1);
});

test("requests without an id, with other ids, or of other owners or methods are independent", async () => {
  const { log, count, runs } = newLog();
  await log.run(key(""), never, count);
  await log.run(key(""), never, count);
  await log.run(key("a"), never, count);
  await log.run(key("b"), never, count);
  await log.run({ ...key("a"), owner: "you" }, never, count);
  await log.run({ ...key("a"), method: "Delete" }, never, count);
  expect(runs()).toBe(6);
});

test("an id with other parameters is refused, also while the first request is in progress", async () => {
  const { log, count } = newLog();
  const gate = Promise.withResolvers<number>();
  const first = log.run(key("a"), never, () => gate.promise);
  await expect(log.run(key("a", "other"), never, count)).rejects.toMatchObject({
    reason: "REQUEST_ID_REUSED",
  });
  gate.resolve(1);
  await first;
  await expect(log.run(key("a", "other"), never, count)).rejects.toMatchObject({
    reason: "REQUEST_ID_REUSED",
  });
});

test("a failed request is forgotten: a retry runs again, also with other parameters", async () => {
  const { log, count } = newLog();
  const fail = (): Promise<number> => Promise.reject(new Error("no luck"));
  await expect(Promise.all([log.run(key("a"), never, fail), log.run(key("a"), never, fail)])).rejects.toThrow(
    "no luck",
  );
  expect(await log.run(key("a", "other"), never, count)).toBe(1);
});

describe("a caller that goes away", () => {
  test("leaves the work to the others", async () => {
    const { log } = newLog();
    const gate = Promise.withResolvers<string>();
    let canceled = false;
    const work = (signal: AbortSignal): Promise<string> => {
      signal.addEventListener("abort", () => {
        canceled = true;
      });
      return gate.promise;
    };
    const leaving = new AbortController();
    const first = log.run(key("a"), leaving.signal, work);
    const second = log.run(key("a"), never, work);
    leaving.abort();
    await expect(first).rejects.toMatchObject({ reason: "CANCELED" });
    expect(canceled).toBe(false);
    gate.resolve("done");
    expect(await second).toBe("done");
  });

  test("as the last one leaves the work to a retry, which gets the answer", async () => {
    const { log, count, runs } = newLog();
    const leaving = new AbortController();
    const gate = Promise.withResolvers<void>();
    let canceled = false;
    const first = log.run(key("a"), leaving.signal, async (signal) => {
      signal.addEventListener("abort", () => {
        canceled = true;
      });
      await gate.promise;
      return count();
    });
    leaving.abort();
    await expect(first).rejects.toMatchObject({ reason: "CANCELED" });
    expect(canceled).toBe(false);
    const retry = log.run(key("a"), never, count);
    gate.resolve();
    expect(await retry).toBe(1);
    expect(await log.run(key("a"), never, count)).toBe(1);
    expect(runs()).toBe(1);
  });

  test("of a request without an id ends the work", async () => {
    const { log } = newLog();
    const leaving = new AbortController();
    const work = (signal: AbortSignal): Promise<never> =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    const only = log.run(key(""), leaving.signal, work);
    leaving.abort(new BerthError("CANCELED", "gone"));
    await expect(only).rejects.toMatchObject({ message: "gone" });
  });

  test("as the last one ends work that needs its callers, and the next request starts it again", async () => {
    const { log, count } = newLog();
    const leaving = new AbortController();
    let canceled = false;
    const endless = (signal: AbortSignal): Promise<number> =>
      new Promise((_, reject) => {
        signal.addEventListener("abort", () => {
          canceled = true;
          // Cleaning up takes a while.
          setTimeout(() => reject(new Error("late")), 20);
        });
      });
    const first = log.run(key("a"), leaving.signal, endless, { needs: "reader" });
    leaving.abort();
    await expect(first).rejects.toMatchObject({ reason: "CANCELED" });
    expect(canceled).toBe(true);
    expect(await log.run(key("a"), never, count)).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 40));
    // The end of the first request does not remove the second one's answer.
    expect(await log.run(key("a"), never, count)).toBe(1);
  });

  test("and whose canceled work succeeds all the same does not change the answer of the retry", async () => {
    const { log, count } = newLog();
    const leaving = new AbortController();
    const late = Promise.withResolvers<number>();
    const first = log.run(key("a"), leaving.signal, () => late.promise, { needs: "reader" });
    leaving.abort();
    await expect(first).rejects.toMatchObject({ reason: "CANCELED" });
    expect(await log.run(key("a"), never, count)).toBe(1);
    late.resolve(2);
    await settled();
    expect(await log.run(key("a"), never, count)).toBe(1);
  });

  test("amid its input leaves a retry that waits to send its own", async () => {
    const { log, count, runs } = newLog();
    const leaving = new AbortController();
    const input = Promise.withResolvers<number>();
    const first = log.run(key("a"), leaving.signal, () => input.promise, { needs: "input" });
    const waiting = [1, 2].map(() => log.run(key("a"), never, count, { needs: "input" }));
    leaving.abort();
    await expect(first).rejects.toMatchObject({ reason: "CANCELED" });
    expect(runs()).toBe(0);
    input.reject(new BerthError("CANCELED", "The call was canceled."));
    expect(await Promise.allSettled(waiting)).toEqual([1, 2].map(() => ({ status: "fulfilled", value: 1 })));
  });

  test("after its input has been read leaves the answer to a retry that waits", async () => {
    const { log, count, runs } = newLog();
    const leaving = new AbortController();
    const rest = Promise.withResolvers<string>();
    const first = log.run(key("a"), leaving.signal, () => rest.promise, { needs: "input" });
    const retry = log.run(key("a"), never, count, { needs: "input" });
    leaving.abort();
    await expect(first).rejects.toMatchObject({ reason: "CANCELED" });
    rest.resolve("done");
    expect([await retry, runs()]).toEqual(["done", 0]);
  });

  test("before it began runs nothing", async () => {
    const { log, count, runs } = newLog();
    await expect(log.run(key("a"), AbortSignal.abort(), count)).rejects.toMatchObject({ reason: "CANCELED" });
    expect(runs()).toBe(0);
  });
});

test("a service that stops cancels requests in progress, and a retry runs again", async () => {
  const { log, count } = newLog();
  const work = (signal: AbortSignal): Promise<number> =>
    new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  const stopped = [1, 2].map(() => log.run(key("a"), never, work, { needs: "input" }));
  log.stop(new BerthError("SHUTTING_DOWN", "on purpose"));
  for (const call of stopped) await expect(call).rejects.toMatchObject({ reason: "SHUTTING_DOWN" });
  expect(await log.run(key("a"), never, count)).toBe(1);
});

test("answers are kept for a day", async () => {
  const { log, clock, count } = newLog();
  await log.run(key("a"), never, count);
  await clock.advance(DAY - 1);
  expect(await log.run(key("a"), never, count)).toBe(1);
  await clock.advance(1);
  expect(await log.run(key("a", "other"), never, count)).toBe(2);
});

test("the number of kept answers is limited; requests in progress are not dropped first", async () => {
  const { log, count } = newLog({ requests: 20, ownerRequests: 10 });
  const gate = Promise.withResolvers<string>();
  const pending = log.run(key("pending"), never, () => gate.promise);
  for (let i = 0; i < 50; i++) await log.run(key(`r${i}`), never, count);
  await settled();
  const again = log.run(key("pending"), never, async () => "run twice");
  gate.resolve("once");
  expect([await pending, await again]).toEqual(["once", "once"]);
  // The newest answer is still kept, an old one is not.
  expect(await log.run(key("r49"), never, count)).toBe(50);
  expect(await log.run(key("r0"), never, count)).toBe(51);
});

test("an owner that sends many requests does not make those of others run twice", async () => {
  const { log, store, count } = newLog({ requests: 100, ownerRequests: 60 });
  const of = (owner: string, requestId: string) => ({ ...key(requestId), owner });
  expect(await log.run(of("quiet", "a"), never, count)).toBe(1);
  const pending = Promise.withResolvers<string>();
  void log.run(of("noisy", "pending"), never, (_, { begin }) => {
    begin("sandbox 7");
    return pending.promise;
  });
  const send = async (owner: string) => {
    for (let i = 0; i < 200; i++) await log.run(of(owner, `${i}`), never, count);
  };
  for (const owner of ["noisy", "loud"]) await send(owner);
  expect(await log.run(of("quiet", "a"), never, count)).toBe(1);
  // They share what is kept, and the newest of each are kept.
  for (const owner of ["noisy", "loud"]) {
    const first = owner === "noisy" ? 2 : 202;
    expect(await log.run(of(owner, "199"), never, count)).toBe(first + 199);
    expect(await log.run(of(owner, "160"), never, count)).toBe(first + 160);
    expect(store.requests.get(of(owner, "130"))).toBeUndefined();
  }
  // What is in progress is not forgotten, also for a restart.
  expect(store.requests.get(of("noisy", "pending"))?.subject).toBe("sandbox 7");
  expect(await log.run(of("noisy", "0"), never, count)).toBe(402);
});

test("the message of a request counts until its work ends, also if its caller has left", async () => {
  const held: string[] = [];
  const holding =
    (caller: string): Hold =>
    async (work) => {
      held.push(caller);
      return work().finally(() => held.pop());
    };
  const { log, count } = newLog();
  const gate = Promise.withResolvers<string>();
  const leaving = new AbortController();
  const first = log.run({ ...key("a"), hold: holding("first") }, leaving.signal, () => gate.promise);
  const retry = log.run({ ...key("a"), hold: holding("retry") }, never, count);
  leaving.abort();
  await expect(first).rejects.toMatchObject({ reason: "CANCELED" });
  expect(held).toEqual(["first"]);
  gate.resolve("once");
  expect(await retry).toBe("once");
  await settled();
  expect(held).toEqual([]);
});

test("many requests that expired together are removed a part at a time", () => {
  const store = newLog().store.requests;
  const put = (id: string, expiresAt: number, bytes = 1): void =>
    store.put({ ...key(id), subject: undefined, answer: new Uint8Array(bytes), expiresAt });
  const limits = { requests: 10_000, ownerRequests: 10_000 };
  for (let i = 0; i < 600; i++) put(`expired ${i}`, 1);
  put("later", 3);
  const left = [];
  for (let i = 0; i < 3; i++) {
    store.trim(2, limits);
    left.push(store.answerBytes());
  }
  expect(left).toEqual([601 - 256, 601 - 2 * 256, 1]);
  for (let i = 0; i < 3; i++) put(`large ${i}`, 1, 10 * 1024 * 1024);
  store.trim(2, limits);
  expect(store.answerBytes()).toBe(1 + 10 * 1024 * 1024);
});

test("large answers of requests beyond the limits are removed a part at a time", () => {
  const store = newLog().store.requests;
  const put = (owner: string, requestId: string, bytes: number): void => {
    const answer = new Uint8Array(bytes);
    store.put({ ...key(requestId), owner, subject: undefined, answer, expiresAt: 1 });
  };
  for (const owner of ["me", "you"]) {
    for (let i = 0; i < 2; i++) put(owner, `large ${i}`, 10 * 1024 * 1024);
    put(owner, "newest", 1);
  }
  const left = [];
  for (let i = 0; i < 3; i++) {
    store.trim(0, { requests: 100, ownerRequests: 1 });
    left.push(store.answerBytes());
  }
  expect(left).toEqual([2 + 2 * 10 * 1024 * 1024, 2, 2]);
});

test("requests of a database from before the counters are counted", () => {
  const database = Database.open(":memory:");
  const before = MIGRATIONS.slice(0, MIGRATIONS.indexOf(REQUEST_COUNTS_SCHEMA));
  for (const migration of before) database.exec(migration);
  database.exec(`PRAGMA user_version = ${before.length}`);
  const insert = database.prepare(
    "INSERT INTO requests (owner, method, request_id, fingerprint, answer, answer_bytes, expires_at) VALUES (?, 'Create', ?, '', x'00', ?, 1)",
  );
  // Three were answered, of which one was dropped; one was not.
  for (const [id, bytes] of Object.entries({ a: -1, b: 1, c: 0, d: 1 })) insert.run("me", id, bytes);
  insert.run("you", "a", 1);
  migrate(database);
  const store = new RequestStore(database);
  store.trim(0, { requests: 100, ownerRequests: 2 });
  const known = ["a", "b", "c", "d"].filter((id) => store.get(key(id)) !== undefined);
  expect(known).toEqual(["b", "c", "d"]);
  expect([store.answerBytes("me"), store.answerBytes("you")]).toEqual([2, 1]);
  store.trim(0, { requests: 2, ownerRequests: 2 });
  expect(store.answerBytes()).toBe(2);
});

test("answers of a database from before they were its last column are kept, and counted as before", () => {
  const database = Database.open(":memory:");
  const before = MIGRATIONS.slice(0, MIGRATIONS.indexOf(ANSWERS_LAST_SCHEMA));
  for (const migration of before) database.exec(migration);
  database.exec(`PRAGMA user_version = ${before.length}`);
  const store = new RequestStore(database);
  const requests = ["a", "b", "c"].map((id, index) => ({
    ...key(id),
    subject: id,
    answer: Buffer.alloc(index + 1),
    dropped: false,
    expiresAt: index,
  }));
  for (const request of requests) store.put(request);
  migrate(database);
  for (const request of requests) expect(store.get(request)).toEqual(request);
  const columns = database.prepare("PRAGMA table_info(requests)").all();
  expect(columns.at(-1)).toMatchObject({ name: "answer" });
  store.put({ ...key("d"), subject: undefined, answer: new Uint8Array(4), expiresAt: 3 });
  expect(store.answerBytes("me")).toBe(10);
  store.trim(1, { requests: 100, ownerRequests: 1 });
  expect(["a", "b", "c", "d"].map((id) => store.get(key(id))?.answer?.length ?? 0)).toEqual([0, 0, 0, 4]);
  expect(store.answerBytes("me")).toBe(4);
});

describe("after a restart", () => {
  /** The log of the next run of the service, an hour later. */
  const restarted = async ({ clock, store }: ReturnType<typeof newLog>) => {
    await clock.advance(3_600_000);
    return new RequestLog(ServiceTime.resume(clock, store.time), store.requests);
  };

  test("answers are the same as before, with any kind of data", async () => {
    const before = newLog();
    const answer = {
      id: "x",
      bytes: new Uint8Array([0, 255]),
      big: 2n ** 60n,
      none: undefined,
      list: [{ a: 1.5 }],
    };
    await before.log.run(key("a"), never, async () => answer);
    const log = await restarted(before);
    expect(await log.run(key("a"), never, before.count)).toEqual(answer);
    await expect(log.run(key("a", "other"), never, before.count)).rejects.toMatchObject({
      reason: "REQUEST_ID_REUSED",
    });
    expect(before.runs()).toBe(0);
  });

  test("an interrupted request runs again with the subject that it had started", async () => {
    const before = newLog();
    void before.log.run(key("a"), never, (_, progress) => {
      expect(progress.subject).toBeUndefined();
      progress.begin("sandbox 7");
      return new Promise(() => {});
    });
    const log = await restarted(before);
    await expect(log.run(key("a", "other"), never, before.count)).rejects.toMatchObject({
      reason: "REQUEST_ID_REUSED",
    });
    const second = log.run(key("a"), never, async (_, { subject }) => subject);
    expect(await second).toBe("sandbox 7");
    // Now it is answered.
    expect(await (await restarted(before)).run(key("a"), never, before.count)).toBe("sandbox 7");
  });

  test("what an interrupted request had started is known to the next retry if one fails before it looks", async () => {
    const before = newLog();
    void before.log.run(key("a"), never, (_, progress) => {
      progress.begin("sandbox 7");
      return new Promise(() => {});
    });
    const log = await restarted(before);
    const refused = log.run(key("a"), never, () => Promise.reject(new Error("not now")));
    await expect(refused).rejects.toThrow("not now");
    expect(await log.run(key("a"), never, async (_, { subject }) => subject)).toBe("sandbox 7");
  });

  test("a request that failed is forgotten", async () => {
    const before = newLog();
    await before.log
      .run(key("a"), never, async (_, progress) => {
        progress.begin("nothing");
        throw new Error("no luck");
      })
      .catch(() => {});
    const log = await restarted(before);
    expect(await log.run(key("a", "other"), never, async (_, { subject }) => subject ?? "none")).toBe("none");
  });

  test("answers expire a day after they were given, even if the service was down meanwhile", async () => {
    const before = newLog();
    await before.log.run(key("a"), never, before.count);
    for (let hour = 0; hour < 24; hour++) await restarted(before);
    const log = await restarted(before);
    expect(await log.run(key("a", "other"), never, before.count)).toBe(2);
  });
});

test("a store that cannot write loses no answer until the restart", async () => {
  const { log, store, count, runs } = newLog();
  store.requests.put = () => {
    throw new BerthError("NO_SPACE", "on purpose");
  };
  await log.run(key("a"), never, count);
  expect(await log.run(key("a"), never, count)).toBe(1);
  expect(runs()).toBe(1);
});

describe("answers beyond the limit", () => {
  const MIB = 1024 * 1024;
  const answer = async (): Promise<string> => "x".repeat(MIB);
  const reasonOf = (work: Promise<unknown>): Promise<unknown> =>
    work.then(
      () => "none",
      (error: unknown) => error instanceof BerthError && error.reason,
    );

  test("are dropped, oldest first, and their requests are not carried out twice", async () => {
    const { log, count, runs, store } = newLog(undefined, { bytes: 4.5 * MIB, ownerBytes: 4.5 * MIB });
    for (const id of ["a", "b", "c", "d", "e", "f"]) await log.run(key(id), never, answer);
    expect(log.answerBytes()).toBeLessThanOrEqual(4.5 * MIB);
    expect(log.answerBytes("me")).toBe(log.answerBytes());
    for (const id of ["a", "b"])
      expect(await reasonOf(log.run(key(id), never, count))).toBe("ANSWER_DROPPED");
    for (const id of ["c", "d", "e", "f"]) expect(await log.run(key(id), never, count)).toHaveLength(MIB);
    expect(await reasonOf(log.run(key("a", "other"), never, count))).toBe("REQUEST_ID_REUSED");
    expect(runs()).toBe(0);
    store.requests.remove(key("f"));
    expect(log.answerBytes()).toBeLessThanOrEqual(3.5 * MIB);
  });

  test("are dropped though they are small and many, for one that is large", async () => {
    const bytes = MIB + 50_000;
    const { log } = newLog(undefined, { bytes, ownerBytes: bytes });
    for (let i = 0; i < 5_000; i++) await log.run(key(`${i}`), never, async () => "x".repeat(20));
    expect(log.answerBytes()).toBeGreaterThan(100_000);
    await log.run(key("large"), never, answer);
    for (let i = 0; i < 5; i++) await settled();
    expect(log.answerBytes()).toBeLessThanOrEqual(bytes);
    expect(await log.run(key("large"), never, answer)).toHaveLength(MIB);
  });

  test("are dropped a part at a time if they are large", () => {
    const store = newLog().store.requests;
    for (let i = 0; i < 4; i++) {
      const large = new Uint8Array(10 * MIB);
      store.put({ ...key(`${i}`), subject: undefined, answer: large, expiresAt: 1 });
    }
    const parts = [];
    for (let i = 0; i < 2; i++) {
      const hasMore = store.dropAnswers({ bytes: MIB, ownerBytes: MIB });
      parts.push([hasMore, store.answerBytes() / MIB]);
    }
    expect(parts).toEqual([
      [true, 20],
      [false, 0],
    ]);
  });

  test("are those of the owner with too many, or with most", async () => {
    const { log, count } = newLog(undefined, { bytes: 6.5 * MIB, ownerBytes: 4.5 * MIB });
    await log.run({ ...key("a"), owner: "you" }, never, answer);
    for (const id of ["a", "b", "c", "d", "e"]) await log.run(key(id), never, answer);
    expect(log.answerBytes("me")).toBeLessThanOrEqual(4.5 * MIB);
    expect(await log.run({ ...key("a"), owner: "you" }, never, count)).toHaveLength(MIB);
    for (const owner of ["third", "fourth"]) await log.run({ ...key("a"), owner }, never, answer);
    expect(log.answerBytes()).toBeLessThanOrEqual(6.5 * MIB);
    expect(await reasonOf(log.run(key("b"), never, count))).toBe("ANSWER_DROPPED");
    expect(await log.run({ ...key("a"), owner: "fourth" }, never, count)).toHaveLength(MIB);
  });

  test("that cannot be stored are limited too", async () => {
    const { log, count, store, runs } = newLog();
    store.requests.put = () => {
      throw new BerthError("NO_SPACE", "The disk is full.");
    };
    for (let i = 0; i < 34; i++) await log.run(key(`${i}`), never, answer);
    expect(await reasonOf(log.run(key("0"), never, count))).toBe("ANSWER_DROPPED");
    expect(await log.run(key("33"), never, count)).toHaveLength(MIB);
    expect(runs()).toBe(0);
  });

  test("that cannot be stored are those of the owner with most", async () => {
    const { log, count, store, runs } = newLog({ requests: 50, ownerRequests: 50 });
    store.requests.put = () => {
      throw new BerthError("NO_SPACE", "The disk is full.");
    };
    const first = { ...key("a"), owner: "you" };
    expect(await log.run(first, never, count)).toBe(1);
    for (let i = 0; i < 60; i++) await log.run(key(`${i}`), never, i < 34 ? answer : async () => "short");
    expect(await log.run(first, never, count)).toBe(1);
    expect(await log.run(key("59"), never, count)).toBe("short");
    expect(runs()).toBe(1);
    expect(await log.run(key("0"), never, count)).toBe(2);
  });
});
