import { expect, test } from "vitest";
import { MAX_STREAMS, Transfers } from "../../../src/workspaces/transfers.ts";

const never = new AbortController().signal;
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("streams beyond an owner's limit are refused, but not another's, and their places are released", () => {
  const transfers = new Transfers();
  const open = Array.from({ length: MAX_STREAMS }, () => transfers.stream("ann"));
  expect(() => transfers.stream("ann")).toThrow(expect.objectContaining({ reason: "TOO_MANY_OPERATIONS" }));
  transfers.stream("bob")[Symbol.dispose]();
  open[0]?.[Symbol.dispose]();
  transfers.stream("ann");
  expect(() => transfers.stream("ann")).toThrow(expect.objectContaining({ reason: "TOO_MANY_OPERATIONS" }));
});

test("four of an owner's copies run at once, regardless of its streams, and another's do not wait", async () => {
  const transfers = new Transfers();
  for (let streams = 0; streams < MAX_STREAMS; streams++) transfers.stream("ann");
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  const copy = (owner: string, name: string, signal = never) =>
    transfers.copy(
      owner,
      () => {
        begun.push(name);
        return new Promise<void>((resolve) => ends.push(resolve));
      },
      signal,
    );
  const copies = ["1", "2", "3", "4", "5"].map((name) => copy("ann", name));
  const abort = new AbortController();
  const leaving = copy("ann", "left", abort.signal);
  const other = copy("bob", "bob's");
  expect(begun).toEqual(["1", "2", "3", "4", "bob's"]);
  abort.abort();
  await expect(leaving).rejects.toThrow("canceled");
  ends[0]?.();
  await settled();
  expect(begun).toEqual(["1", "2", "3", "4", "bob's", "5"]);
  for (const end of ends) end();
  await Promise.all([...copies, other]);
  expect(begun).not.toContain("left");
});

test("a failed transfer releases its place", async () => {
  const transfers = new Transfers();
  for (let failures = 0; failures < 10; failures++)
    await expect(transfers.copy("ann", () => Promise.reject(new Error("failed")), never)).rejects.toThrow(
      "failed",
    );
  expect(await transfers.copy("ann", async () => "done", never)).toBe("done");
});
