import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import type { JobRequest } from "../../../../src/processes/shell/job.ts";
import {
  jobText,
  LANE_BOOT,
  PLAIN_START,
  PRESTARTED_SHELL,
  plainJobCommand,
  prestartedJobText,
} from "../../../../src/processes/shell/script.ts";

const NONCE = "nonce";
const request: JobRequest = {
  argv: ["/bin/sh", "-c", "exit 7"],
  ...{ env: {}, workingDir: "/", user: "", stdin: true, terminal: undefined },
};

/** The exit code of a shell that gets some input and then EOF. */
async function codeOf([file = "", ...args]: readonly string[], input: string | Buffer): Promise<number> {
  const child = spawn(file, args, { stdio: ["pipe", "ignore", "ignore"] });
  child.stdin.end(input);
  const [code] = await once(child, "exit");
  return code as number;
}

test("no name of a variable is lost", () => {
  const env = Object.fromEntries([["__proto__", "some text"]]);
  expect(jobText({ ...request, env }, NONCE, false)).toContain("__proto__='some text'");
});

// The engine reports this code if output holds up the markers.
test("every kind of shell ends with the exit code of its job", async () => {
  const plain = plainJobCommand(request, NONCE);
  expect(await codeOf(plain.argv, plain.input ?? "")).toBe(7);
  expect(await codeOf(["/bin/sh", "-c", PRESTARTED_SHELL], prestartedJobText(request, NONCE))).toBe(7);
  const lane = PLAIN_START + LANE_BOOT;
  const job = (code: number): string =>
    jobText({ ...request, argv: ["/bin/sh", "-c", `exit ${code}`] }, NONCE, false);
  expect(await codeOf(["/bin/sh"], lane + job(7))).toBe(7);
  expect(await codeOf(["/bin/sh"], lane + job(7) + job(3))).toBe(3);
  // Not that of the job before.
  expect(await codeOf(["/bin/sh"], `${lane}${job(7)}n=x s=; exit 5\n`)).toBe(5);
});

test("an undumpable lane runs Berth's own scripts in a fork, which changes nothing of the lane", async () => {
  const own = (script: string): string =>
    jobText({ ...request, argv: ["/bin/sh", "-c", script], isOwnScript: true }, NONCE, true);
  const lane = PLAIN_START + LANE_BOOT;
  expect(own("exit 7")).not.toContain("exec");
  expect(await codeOf(["/bin/sh"], lane + own("exit 7"))).toBe(7);
  const hostile = "trap 'exit 9' 0; set -- a; cd /; umask 777; A() { :; }; J() { :; }; n=x s=5; exit 8";
  expect(await codeOf(["/bin/sh"], lane + own(hostile) + own("exit 3"))).toBe(3);
  // The command line of another program is never evaluated.
  const { argv } = request;
  expect(jobText({ ...request, argv }, NONCE, true)).toContain("exec");
  expect(jobText({ ...request, argv, isOwnScript: true }, NONCE, false)).toContain("exec");
  expect(prestartedJobText({ ...request, argv, isOwnScript: true }, NONCE)).toContain("exec");
});
