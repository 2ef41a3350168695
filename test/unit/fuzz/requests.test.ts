import { fromJsonString, toBinary, toJsonString } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { toConnectError } from "../../../src/server/error-conversion.ts";
import { parseMessage } from "../../../src/server/framing.ts";
import { checkedMessages, requestFormat } from "../../../src/server/library-handler.ts";
import { asStream, FUZZ_TIMEOUT_MS, fuzz, mutated } from "../../support/fuzz/fuzz.ts";
import { BEHIND, handlersBeforeDoor, refusalOf } from "../../support/fuzz/handlers.ts";
import { messages } from "../../support/fuzz/messages.ts";

const routes = handlersBeforeDoor();
/** Share of all cases, for both forms of all methods together. */
const SHARE = 0.6;
const MAX_BYTES = 1 << 20;
/** Methods whose validation at least one case has passed. */
const reached = new Set<string>();

test("the handlers of every method are here", () => {
  expect(routes.length).toBeGreaterThan(60);
});

test.each(routes.map((route) => [route.name, route] as const))(
  "%s takes any bytes",
  { timeout: FUZZ_TIMEOUT_MS },
  async (_name, route) => {
    const { input } = route.method;
    const valid = messages(input).map((message) => toBinary(input, message));
    let parsed = 0;
    await fuzz(SHARE / 2 / routes.length, mutated(valid), async (bytes) => {
      const message = await orRefusal(() => parseMessage(input, bytes));
      if (message === undefined) return;
      parsed++;
      const refusal = await refusalOf(route, message as never);
      if (refusal?.reason === BEHIND) reached.add(route.name);
      sendable(refusal);
    });
    expect(parsed).toBeGreaterThan(0);
  },
);

test.each(routes.map((route) => [route.name, route] as const))(
  "%s takes any JSON",
  { timeout: FUZZ_TIMEOUT_MS },
  async (_name, route) => {
    const { input } = route.method;
    const header = new Headers({ "content-type": "application/json" });
    const format = requestFormat(route.method, header, MAX_BYTES);
    const valid = messages(input).map((message) => jsonOf(input, message));
    let parsed = 0;
    await fuzz(SHARE / 2 / routes.length, mutated(valid), async (bytes) => {
      const checked = await orRefusal(async () => {
        for await (const part of checkedMessages(asStream([bytes]), format, uncompressed)) return part;
        return undefined;
      });
      if (checked === undefined) return;
      const message = asLibrary(() => fromJsonString(input, Buffer.from(checked).toString()));
      if (message === undefined) return;
      parsed++;
      const refusal = await refusalOf(route, message as never);
      if (refusal?.reason === BEHIND) reached.add(route.name);
      sendable(refusal);
    });
    expect(parsed).toBeGreaterThan(0);
  },
);

test("cases pass the validation of most methods", () => {
  console.log(
    reached.size,
    routes.length,
    routes.map((r) => r.name).filter((n) => !reached.has(n)),
  );
  expect(reached.size).toBeGreaterThan(routes.length / 2);
});

const uncompressed = async (bytes: Uint8Array) => bytes;

/** Some values, such as times beyond the calendar, have no JSON form. Use their bytes instead. */
function jsonOf(...[desc, message]: Parameters<typeof toBinary>): Buffer {
  try {
    return Buffer.from(toJsonString(desc, message));
  } catch {
    return Buffer.from(toBinary(desc, message));
  }
}

/** The library treats errors of its parser as the client's mistake. */
function asLibrary<T>(parse: () => T): T | undefined {
  try {
    return parse();
  } catch {
    return undefined;
  }
}

async function orRefusal<T>(take: () => T | Promise<T>): Promise<T | undefined> {
  try {
    return await take();
  } catch (error) {
    if (!(error instanceof BerthError) || error.reason === "INTERNAL") throw error;
    sendable(error);
    return undefined;
  }
}

/** A refusal must fit into the trailers of its call. */
function sendable(refusal: BerthError | undefined): void {
  if (refusal === undefined) return;
  const { length } = toConnectError(refusal).rawMessage;
  if (length >= 8_192)
    throw new Error(`a refusal has ${length} characters: ${refusal.message.slice(0, 100)}`);
}
