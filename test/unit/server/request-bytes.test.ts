import { PassThrough } from "node:stream";
import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import type { HttpRequest } from "../../../src/server/http-message.ts";
import { ReceiveBudget } from "../../../src/server/limits.ts";
import { RequestBytes } from "../../../src/server/request-bytes.ts";

/** A request whose body a test sends, and its reader. */
class Reading {
  readonly body = new PassThrough();
  readonly budget: ReceiveBudget;
  readonly bytes: RequestBytes;
  readonly #over = new AbortController();

  /** @param session over HTTP/2, its connection. */
  constructor(budgetBytes = 1_000, session?: object) {
    this.budget = new ReceiveBudget(budgetBytes, 0);
    const call = {
      ...{ principal: undefined, account: undefined, method: "test.Service/Method", streamsRequests: true },
      signal: this.#over.signal,
    };
    const http =
      session === undefined ? { httpVersionMajor: 1 } : { httpVersionMajor: 2, stream: { session } };
    const request = Object.assign(this.body, http) as unknown as HttpRequest;
    this.bytes = new RequestBytes(call, request, { maxBytes: 100, receiving: this.budget, queue: undefined });
  }

  end(reason: Error): void {
    this.#over.abort(reason);
  }

  async next(): Promise<string | undefined> {
    const { value } = await this.bytes.next();
    return value && Buffer.from(value).toString();
  }
}

/** The result of a promise, if it settles within a few turns of the event loop. */
async function soon<T>(waiting: Promise<T>): Promise<T | "it still waits"> {
  const late = (async () => {
    for (let turns = 0; turns < 10; turns++) await setImmediate();
    return "it still waits" as const;
  })();
  return Promise.race([waiting, late]);
}

test("a body is read as it arrives, to its end", async () => {
  const { body, bytes, budget } = new Reading();
  const all: string[] = [];
  const reading = (async () => {
    for await (const chunk of bytes) all.push(Buffer.from(chunk).toString());
  })();
  body.write("some");
  await expect.poll(() => all).toEqual(["some"]);
  body.write("more");
  await expect.poll(() => all).toEqual(["some", "more"]);
  expect(budget.heldBytes).toBe(8);
  body.end();
  await reading;
  expect(budget.heldBytes).toBe(0);
});

test("a stream holds at most its largest message, and no more than the budget allows", async () => {
  const { body, bytes, budget } = new Reading(90);
  body.write("x".repeat(80));
  await bytes.next();
  body.write("x".repeat(80));
  await expect(bytes.next()).rejects.toMatchObject({ reason: "TOO_MANY_OPERATIONS" });
  expect(budget.heldBytes).toBe(0);
  await expect(bytes.next()).rejects.toMatchObject({ reason: "TOO_MANY_OPERATIONS" });
  const wide = new Reading();
  wide.body.write("x".repeat(300));
  await wide.bytes.next();
  expect(wide.budget.heldBytes).toBe(100);
});

test("the end of its call ends the read, also while it waits", async () => {
  const reading = new Reading();
  reading.body.write("some");
  expect(await reading.next()).toBe("some");
  const waiting = reading.next();
  reading.end(new Error("the client is gone"));
  await expect(soon(waiting)).rejects.toMatchObject({ reason: "CANCELED" });
  await expect(reading.next()).rejects.toMatchObject({ reason: "CANCELED" });
  expect(reading.budget.heldBytes).toBe(0);
});

test("a reader that leaves while it waits has reached the end", async () => {
  const reading = new Reading();
  const waiting = reading.next();
  await reading.bytes.return();
  expect(await soon(waiting)).toBeUndefined();
  expect(await reading.next()).toBeUndefined();
  // An error after the reader has left must reach neither the reader nor the process.
  reading.body.destroy(new Error("broken"));
  await setImmediate();
});

test("over HTTP/2 an end is believed once the client answers a ping, or at once if all that was announced is here", async () => {
  let answer = (): void => {};
  const session = {
    ping: (onAnswer: () => void) => {
      answer = onAnswer;
    },
  };
  const waiting = new Reading(1_000, session);
  waiting.body.end("some");
  expect(await waiting.next()).toBe("some");
  const end = waiting.next();
  expect(await soon(end)).toBe("it still waits");
  answer();
  expect(await end).toBeUndefined();
  const trusting = new Reading(1_000, session);
  trusting.body.end("some");
  expect(await trusting.next()).toBe("some");
  trusting.bytes.trustEnd();
  expect(await soon(trusting.next())).toBeUndefined();
});

test.each([
  ["closed", undefined, { reason: "CANCELED" }],
  ["broken", new Error("broken"), { message: "broken" }],
])("a body that is %s halfway has no end", async (_, error, expected) => {
  const reading = new Reading();
  reading.body.write("some");
  expect(await reading.next()).toBe("some");
  const waiting = reading.next();
  reading.body.destroy(error);
  await expect(soon(waiting)).rejects.toMatchObject(expected);
  expect(reading.budget.heldBytes).toBe(0);
  await expect(reading.next()).rejects.toMatchObject(expected);
});
