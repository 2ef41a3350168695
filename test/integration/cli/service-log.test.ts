import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";

const MODULE = path.join(import.meta.dirname, "../../../src/cli/service-log.ts");

/**
 * A program that logs `lines` numbered lines, says so on stdout, logs one more each time it reads something, and exits
 * when its stdin ends. `format`: how, as source code. `then`: what it does at once after it said so, without a turn of
 * its event loop.
 */
function start(lines: number, stderr: number | "pipe", format = "undefined", then = "") {
  const code = `
    const { readSync, writeSync } = await import("node:fs");
    const { serviceLog } = await import(${JSON.stringify(MODULE)});
    const log = serviceLog({ base: undefined }, ${format});
    let i = 0;
    const add = () => log.info({ i: i++, text: "x".repeat(300) }, "line");
    process.stdin.once("data", () => {
      while (i < ${lines}) add();
      writeSync(1, "logged");
      ${then}
      process.stdin.on("data", add);
    });`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", code], {
    stdio: ["pipe", "pipe", stderr],
    timeout: 120_000,
    killSignal: "SIGKILL",
  });
  // If the test fails, it may run for ever.
  onTestFinished(() => void child.kill("SIGKILL"));
  let stdout = "";
  child.stdout?.on("data", (chunk) => {
    stdout += chunk;
  });
  child.stdin?.write("go");
  return {
    child,
    ended: once(child, "exit"),
    closed: once(child, "close"),
    logged: () => expect.poll(() => stdout).toBe("logged"),
    /** Resolves when it exits, if `then` contains {@link SAY_ENDING}. */
    ending: () => expect.poll(() => stdout).toBe("logged, ending"),
  };
}

const SAY_ENDING = 'process.prependOnceListener("exit", () => writeSync(1, ", ending"));';

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

test("all are written, even if the machine halts while the program ends", async () => {
  const { child, ended, ending } = start(1_000, "pipe", "undefined", SAY_ENDING);
  if (child.stderr === null) throw new Error("its stderr is not piped");
  child.stdin?.end();
  await ending();
  child.kill("SIGSTOP");
  await sleep(1_500);
  child.kill("SIGCONT");
  // It runs again somewhat before its reader does.
  await sleep(100);
  expect((await text(child.stderr)).trimEnd().split("\n")).toHaveLength(1_000);
  expect(await ended).toEqual([0, null]);
});

const MANY = 10_000;

/** Parses a log, whose lines and gaps must be whole, in order, and as many as were logged. */
function readLog(written: string) {
  const lines: { i?: number; lost?: number }[] = written
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  let next = 0;
  for (const { i, lost = 0 } of lines) {
    if (lost === 0) expect(i).toBe(next++);
    else next += lost;
  }
  return { lines, gaps: lines.filter(({ lost = 0 }) => lost > 0) };
}

describe.each([
  ["JSON", "undefined"],
  ["text", "(line) => line"],
])("if nobody reads a log of %s", (_, format) => {
  test("the program continues, and ends", async () => {
    const { child, ended, logged } = start(MANY, "pipe", format);
    await logged();
    child.stdin?.end();
    expect(await ended).toEqual([0, null]);
  });

  test("lines beyond a limit are lost, and a line in their place says how many", async () => {
    const { child, closed, logged } = start(MANY, "pipe", format);
    await logged();
    let written = "";
    child.stderr?.on("data", (chunk) => {
      written += chunk;
    });
    // Read again, it says so without another line.
    await expect.poll(() => written).toContain('"lost":');
    child.stdin?.end("one more");
    expect(await closed).toEqual([0, null]);
    const { lines, gaps } = readLog(written);
    expect(gaps[0]).toMatchObject({ level: 40, time: expect.stringMatching(/^20.*Z$/) });
    // As much as the limit precedes the first gap.
    expect(lines.indexOf(gaps[0] ?? {})).toBeGreaterThan(1_000);
    expect(lines.at(-1)).toMatchObject({ i: MANY });
  });
});

test("lines beyond the limit are written if the reader has made space since", async () => {
  const waitForInput = `
    for (let isWaiting = true; isWaiting; )
      try {
        // The end: the test was killed.
        if (readSync(0, Buffer.alloc(10)) === 0) process.exit(1);
        isWaiting = false;
      } catch {
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
      }`;
  const addMore = "for (let more = 0; more < 5; more++) add();";
  const { child, closed, logged } = start(MANY, "pipe", "undefined", `${waitForInput}\n${addMore}`);
  await logged();
  let written = "";
  child.stderr?.on("data", (chunk) => {
    written += chunk;
  });
  await expect.poll(() => written.length).toBeGreaterThan(60_000);
  child.stdin?.end("go on");
  expect(await closed).toEqual([0, null]);
  const { lines } = readLog(written);
  const last = lines.slice(-5).map(({ i }) => i);
  expect(last).toEqual([0, 1, 2, 3, 4].map((more) => MANY + more));
});

test.each([
  ["JSON", "undefined"],
  ["text", '(await import("pino-pretty")).prettyFactory({ colorize: false, singleLine: true })'],
])(
  "a field that a caller chose does not act on the terminal on which a log of %s is read",
  async (_, format) => {
    const field = JSON.stringify("\x1b[2J\x9b2J\x7f\u202e\u2028日本");
    const { child, ended } = start(0, "pipe", format, `log.info({ field: ${field} }, "line");`);
    if (child.stderr === null) throw new Error("its stderr is not piped");
    child.stdin?.end();
    const written = await text(child.stderr);
    expect(written).toContain("\\u009b2J");
    expect(written).toContain("日本");
    expect(written).not.toMatch(/[\0-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]/);
    expect(await ended).toEqual([0, null]);
  },
);
