import { expect, test } from "vitest";
import { withKeepalive } from "../../../src/rpc/stream.ts";
import { keptBytes } from "../../support/kept-bytes.ts";

test("a reader that stops does not wait for a stream that does not end", async () => {
  let ended = false;
  async function* deaf(): AsyncGenerator<string> {
    try {
      yield "first";
      await new Promise(() => {});
    } finally {
      ended = true;
    }
  }
  const items: (string | undefined)[] = [];
  const read = async (): Promise<string> => {
    for await (const item of withKeepalive(deaf(), 5)) {
      items.push(item);
      if (item === undefined) break;
    }
    return "stopped";
  };
  const waiting = new Promise((resolve) => setTimeout(resolve, 10_000, "still waits").unref());
  expect(await Promise.race([read(), waiting])).toBe("stopped");
  expect(items).toEqual(["first", undefined]);
  expect(ended).toBe(false);
});

test("a reader that stops ends a stream that waits to be read", async () => {
  let ended = false;
  async function* obedient(): AsyncGenerator<number> {
    try {
      for (let i = 0; ; i++) yield i;
    } finally {
      ended = true;
    }
  }
  for await (const item of withKeepalive(obedient(), 1000)) if (item === 2) break;
  await new Promise((resolve) => setImmediate(resolve));
  expect(ended).toBe(true);
});

test("the silence of a stream takes no memory, however long it lasts", async () => {
  async function* silent(): AsyncGenerator<string> {
    await new Promise(() => {});
    yield "never";
  }
  const items = withKeepalive(silent(), 0);
  const keepAlive = async (times: number): Promise<void> => {
    for (let i = 0; i < times; i++) await items.next();
  };
  await keepAlive(100);
  const before = await keptBytes();
  await keepAlive(1_000);
  expect((await keptBytes()) - before).toBeLessThan(150_000);
  await items.return(undefined);
});
