import { execFileSync } from "node:child_process";
import { closeSync, constants, mkdtempSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setImmediate } from "node:timers/promises";
import { expect, onTestFinished, test, vi } from "vitest";
import { RequestTooLongError, Zygote } from "../../../../src/engine/docker/zygote.ts";
import { ZYGOTE_FILES } from "../../../../src/engine/docker/zygote-script.ts";

/** Prints the ids of the requests that it runs, and the lengths of their programs. */
const SHELL = `Z() { printf '%s %s;' "$1" "\${#8}"; }\n`;

/** A zygote whose requests are read only when the test asks for them. */
function unreadZygote() {
  const directory = mkdtempSync(path.join(tmpdir(), "berth-requests-"));
  const requests = path.join(directory, ZYGOTE_FILES.requests);
  const answers = path.join(directory, ZYGOTE_FILES.answers);
  execFileSync("mkfifo", [requests, answers]);
  const reader = openSync(requests, constants.O_RDONLY | constants.O_NONBLOCK);
  const zygote = new Zygote(directory);
  onTestFinished(() => {
    zygote.close();
    closeSync(reader);
    rmSync(directory, { recursive: true });
  });
  const pipes = { stdin: "in", stdout: "out", stderr: "err" };
  return {
    zygote,
    /** Opens the pipe of answers, as root in the sandbox could. */
    openAnswers: (): number => {
      const writer = openSync(answers, constants.O_WRONLY | constants.O_NONBLOCK);
      onTestFinished(() => closeSync(writer));
      return writer;
    },
    request: (program: string): string =>
      zygote.request({ user: "0", uid: 0, pipes, argv: [program], env: {} }),
    read: (): string => {
      const buffer = Buffer.alloc(64 * 1024);
      return buffer.toString("latin1", 0, readSync(reader, buffer));
    },
  };
}

test("a long request that does not fit into the pipe runs nothing, and does not affect others", () => {
  const { request, read } = unreadZygote();
  const long = "x".repeat(9_000);
  const ids: string[] = [];
  const fill = (): void => {
    for (let i = 0; i < 20; i++) ids.push(request(long));
  };
  expect(fill).toThrow(expect.objectContaining({ code: "EAGAIN" }));
  const first = read();
  expect(first).toMatch(/x'\n$/);
  const last = [request("short"), request(`${long}'`)];
  const ran = execFileSync("/bin/sh", ["-s"], { input: SHELL + first + read() }).toString();
  const whole = ids.map((id) => `${id} 9000;`);
  expect(ran).toBe([...whole, `${last[0]} 5;`, `${last[1]} 9001;`].join(""));
});

test("a request that is too long for the pipe is not started", () => {
  const { request, read } = unreadZygote();
  expect(() => request("x".repeat(50_000))).toThrow(RequestTooLongError);
  expect(() => request("'".repeat(11_000))).toThrow(RequestTooLongError);
  const id = request("x");
  expect(read()).toMatch(new RegExp(`^Z '${id}' .*\n$`));
});

test.each([
  ["of no request", () => "0123456789abcdef p1\n"],
  ["that were given already", (id: string) => `${id} p1\n`],
  ["without an end", () => "x"],
])("answers %s are not read as fast as they are written", async (_, answerTo) => {
  const { zygote, request, openAnswers } = unreadZygote();
  const id = request("x");
  const { waiterPid, end } = zygote.answers(id);
  const writer = openAnswers();
  writeSync(writer, `${id} p7\n`);
  expect(await waiterPid).toBe(7);
  vi.useFakeTimers({ toFake: ["setTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  const unasked = Buffer.alloc(2_000, answerTo(id));
  const flood = async (): Promise<void> => {
    for (let i = 0; i < 1_000; i++) {
      writeSync(writer, unasked);
      await setImmediate();
    }
  };
  await expect(flood()).rejects.toThrow("EAGAIN");
  let isOver = false;
  const answer = end.finally(() => {
    isOver = true;
  });
  for (let text = `\n${id} 5\n`; !isOver; await setImmediate()) {
    vi.advanceTimersByTime(1_000);
    try {
      writeSync(writer, text);
      text = "\n";
    } catch {
      // The pipe is still full.
    }
  }
  expect(await answer).toEqual({ kind: "exited", code: 5 });
});
