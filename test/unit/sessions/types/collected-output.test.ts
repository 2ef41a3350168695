import { expect, test } from "vitest";
import { CollectedOutput } from "../../../../src/sessions/types/collected-output.ts";

test("while a program is being stopped, what its reader has no room for is kept but not passed on", async () => {
  const [signal, timeout] = [new AbortController().signal, new AbortController()];
  const room = Promise.withResolvers<void>();
  const passed: string[] = [];
  const write = (_: string, chunk: Buffer): Promise<void> | undefined => {
    passed.push(chunk.toString());
    return chunk.toString() === "large" ? room.promise : undefined;
  };
  const collected = new CollectedOutput({
    ...{ signal, timeout: timeout.signal, timeoutMs: 1_000, restarted: false },
    output: { write },
  });
  const wait = collected.write("stdout", Buffer.from("large"));
  timeout.abort();
  await expect(wait).resolves.toBeUndefined();
  expect(collected.write("stdout", Buffer.from(" late"))).toBeUndefined();
  room.resolve();
  await room.promise;
  await collected.write("stdout", Buffer.from(" end"));
  expect(passed).toEqual(["large", " end"]);
  expect(collected.result().data).toMatchObject({ stdout: "large late end", truncated: false });
});
