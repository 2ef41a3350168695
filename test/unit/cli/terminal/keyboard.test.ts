import { expect, test } from "vitest";
import { Keyboard } from "../../../../src/cli/terminal/keyboard.ts";

interface Write {
  readonly offset: bigint;
  readonly text: string;
  answer(): void;
  fail(error: Error): void;
}

/** A keyboard whose writes a test answers. */
function keyboard() {
  const writes: Write[] = [];
  const rooms: boolean[] = [];
  const failures: unknown[] = [];
  const keys = new Keyboard({
    write: (offset, data) => {
      const { promise, resolve, reject } = Promise.withResolvers<bigint>();
      const answer = () => resolve(offset + BigInt(data.length));
      writes.push({ offset, text: Buffer.from(data).toString(), answer, fail: reject });
      return promise;
    },
    onRoom: (room) => rooms.push(room),
    onFailure: (error) => failures.push(error),
  });
  return { type: (text: string) => keys.type(Buffer.from(text)), writes, rooms, failures };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test("the first key is sent at once, later ones together when it has arrived", async () => {
  const { type, writes } = keyboard();
  type("a");
  expect(writes).toMatchObject([{ offset: 0n, text: "a" }]);
  type("b");
  type("c");
  await settled();
  expect(writes).toHaveLength(1);
  writes[0]?.answer();
  await settled();
  expect(writes.slice(1)).toMatchObject([{ offset: 1n, text: "bc" }]);
  writes[1]?.answer();
  await settled();
  type("d");
  expect(writes.slice(2)).toMatchObject([{ offset: 3n, text: "d" }]);
});

test("a key typed as the answer arrives is not lost", async () => {
  const { type, writes } = keyboard();
  type("a");
  for (let turns = 0; turns < 20; turns++) {
    writes.at(-1)?.answer();
    for (let ticks = 0; ticks < turns; ticks++) await Promise.resolve();
    type("b");
    await settled();
    expect(writes).toHaveLength(turns + 2);
  }
});

test("long input is sent in pieces, and there is no room for more meanwhile", async () => {
  const { type, writes, rooms } = keyboard();
  const text = "0123456789abcdef".repeat(100_000);
  type(text);
  expect(rooms).toEqual([false]);
  for (let sent = 0; sent < writes.length; sent++) {
    writes[sent]?.answer();
    await settled();
  }
  expect(writes.length).toBeGreaterThan(1);
  expect(writes.map((write) => write.text).join("")).toBe(text);
  expect(rooms.at(-1)).toBe(true);
});

test("a failure is reported", async () => {
  const { type, writes, failures } = keyboard();
  type("a");
  const error = new Error("no way through");
  writes[0]?.fail(error);
  await settled();
  expect(failures).toEqual([error]);
});
