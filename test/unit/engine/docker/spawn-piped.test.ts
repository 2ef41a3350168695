import { PassThrough } from "node:stream";
import { expect, test } from "vitest";
import { untilOpened } from "../../../../src/engine/docker/spawn-piped.ts";

/** An exec that has ended when it is inspected. Calls `before` first. */
const ended = (before = () => {}) => ({
  inspect: async () => {
    before();
    return { Running: false, ExitCode: 0 };
  },
});

test("a shell that ended unnoticed but wrote its byte has opened its pipes: its command must not run again", async () => {
  const stdout = new PassThrough();
  await untilOpened(
    ended(() => void stdout.write("+hello")),
    stdout,
    undefined,
  );
  expect(String(stdout.read())).toBe("hello");
});

test("a shell that ended without its byte has not opened them", async () => {
  const opened = untilOpened(ended(), new PassThrough(), undefined);
  await expect(opened).rejects.toThrow("the shell ended with 0 before it opened its pipes");
});
