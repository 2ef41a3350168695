import { execFileSync } from "node:child_process";
import { closeSync, constants, mkdtempSync, openSync, readSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { RequestTooLongError, Zygote } from "../../../../src/engine/docker/zygote.ts";
import { ZYGOTE_FILES } from "../../../../src/engine/docker/zygote-script.ts";

/** Prints the ids of the requests that it runs, and the lengths of their programs. */
const SHELL = `Z() { printf '%s %s;' "$1" "\${#8}"; }\n`;

/** A zygote whose requests are read only when the test asks for them. */
function unreadZygote() {
  const directory = mkdtempSync(path.join(tmpdir(), "berth-requests-"));
  const requests = path.join(directory, ZYGOTE_FILES.requests);
  execFileSync("mkfifo", [requests, path.join(directory, ZYGOTE_FILES.answers)]);
  const reader = openSync(requests, constants.O_RDONLY | constants.O_NONBLOCK);
  const zygote = new Zygote(directory);
  onTestFinished(() => {
    zygote.close();
    closeSync(reader);
    rmSync(directory, { recursive: true });
  });
  const pipes = { stdin: "in", stdout: "out", stderr: "err" };
  return {
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
