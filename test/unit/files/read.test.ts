import { expect, test } from "vitest";
import type { OpenFile } from "../../../src/engine/port.ts";
import type { Operation } from "../../../src/files/operation.ts";
import { downloadFile } from "../../../src/files/read.ts";

const MIB = 1024 * 1024;
const STAT = `81a4 ${64 * MIB} 0 0 1 2026-11-26 08:00:00.000000000 +0000\n`;

/** Downloads 64 MiB, of which only three bytes come through the script's pipe. Returns what arrived. */
async function download(openFile: () => Promise<OpenFile | undefined>) {
  const output = [STAT, "a", "b", "c"].map((text) => Buffer.from(text));
  const calls: string[] = [];
  const running = {
    read: async () => output.shift(),
    openFile,
    leave: async () => void calls.push("leave"),
  };
  const op = {
    start: async () => running,
    succeed: async () => void calls.push("succeed"),
    progressed: () => {},
    signal: new AbortController().signal,
  } as unknown as Operation;
  let text = "";
  for await (const item of downloadFile(op, "/file", 0)) if (item.type === "chunk") text += item.data;
  return { text, calls };
}

test("a file that cannot be opened from outside comes through the pipe", async () => {
  const unseen: unknown[] = [];
  const onUnseen = (error: unknown): void => void unseen.push(error);
  process.on("unhandledRejection", onUnseen);
  const failing = () => Promise.reject(new Error("EMFILE"));
  expect(await download(failing)).toEqual({ text: "abc", calls: ["succeed"] });
  process.off("unhandledRejection", onUnseen);
  expect(unseen).toEqual([]);
  expect(await download(async () => undefined)).toEqual({ text: "abc", calls: ["succeed"] });
});

test("one that is opened is read without the pipe, and closed", async () => {
  let isClosed = false;
  const content = "ABCDEF";
  const file: OpenFile = {
    read: async (position) => Buffer.from(content.slice(position, position + 2)),
    killHolder: async () => true,
    close: async () => {
      isClosed = true;
    },
  };
  expect(await download(async () => file)).toEqual({ text: content, calls: ["leave"] });
  await expect.poll(() => isClosed).toBe(true);
});
