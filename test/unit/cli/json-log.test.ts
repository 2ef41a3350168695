import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { describe, expect, test } from "vitest";

const MODULE = path.join(import.meta.dirname, "../../../src/cli/json-log.ts");

/** A program that logs lines once its stdin has ended, and then exits. */
function start(lines: number, stderr: number | "pipe") {
  const code = `
    const { jsonLog } = await import(${JSON.stringify(MODULE)});
    const log = jsonLog(2, { base: undefined });
    process.stdin.resume().once("end", () => {
      for (let i = 0; i < ${lines}; i++) log.info({ i, text: "x".repeat(300) }, "line");
    });`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", code], {
    stdio: ["pipe", "ignore", stderr],
    timeout: 30_000,
    killSignal: "SIGKILL",
  });
  return { child, ended: once(child, "exit") };
}

describe.each([1, 10, 30, 1_000])("of a program that ends after %i lines", (lines) => {
  test("all are written", async () => {
    const { child, ended } = start(lines, "pipe");
    if (child.stderr === null) throw new Error("its stderr is not piped");
    child.stdin?.end();
    const written = (await text(child.stderr)).trimEnd().split("\n");
    expect(written.map((line) => JSON.parse(line).i)).toEqual(Array.from({ length: lines }, (_, i) => i));
    expect(await ended).toEqual([0, null]);
  });

  test("none blocks it if their reader has gone", async () => {
    const { child, ended } = start(lines, "pipe");
    child.stderr?.destroy();
    child.stdin?.end();
    expect(await ended).toEqual([0, null]);
  });

  test("none makes it fail if the disk is full", async () => {
    const full = openSync("/dev/full", "w");
    const { child, ended } = start(lines, full);
    closeSync(full);
    child.stdin?.end();
    expect(await ended).toEqual([0, null]);
  });
});
