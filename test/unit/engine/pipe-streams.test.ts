import { constants, openSync, readSync } from "node:fs";
import { setImmediate } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { PipeSocket } from "../../../src/engine/pipe-socket.ts";
import { PipeStreams } from "../../../src/engine/pipe-streams.ts";
import { fillPipe, makeFifo, openFifo } from "../../support/fifo.ts";

test("a write of one byte waits until the pipe has room for it", async () => {
  const [input, output] = [makeFifo(), makeFifo()];
  const reader = openFifo(input);
  openFifo(output);
  const stdin = new PipeSocket(openSync(input, constants.O_WRONLY | constants.O_NONBLOCK), "writable");
  const stdout = new PipeSocket(openSync(output, constants.O_RDONLY | constants.O_NONBLOCK), "readable");
  const outputs = [{ stream: "stdout", socket: stdout }] as const;
  const leftovers = { sandbox: "", drain: () => () => {}, keep() {} };
  const streams = new PipeStreams({ stdin, outputs }, { data() {}, end() {} }, leftovers);
  onTestFinished(() => streams.destroy());
  const filled = fillPipe(reader);
  let isWritten = false;
  const written = streams.write(Buffer.from("x")).then(() => {
    isWritten = true;
  });
  for (let turn = 0; turn < 10; turn++) await setImmediate();
  expect(isWritten).toBe(false);
  const read = Buffer.alloc(filled + 1);
  let bytes = readSync(reader, read);
  await written;
  bytes += readSync(reader, read, bytes, read.length - bytes, null);
  expect(bytes).toBe(filled + 1);
  expect(read.at(-1)).toBe("x".charCodeAt(0));
});
