import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import type { JobRequest } from "../../../../src/processes/shell/job.ts";
import {
  askCommand,
  jobText,
  LANE_BOOT,
  OOM_KILLS_COMMAND,
  PLAIN_START,
  PRESTARTED_SHELL,
  plainJobCommand,
  prestartedJobText,
  readyCommand,
  terminateCommand,
} from "../../../../src/processes/shell/script.ts";

const NONCE = "nonce";
const request: JobRequest = {
  argv: ["/bin/sh", "-c", "exit 7"],
  ...{ env: {}, workingDir: "/", user: "", stdin: true, terminal: undefined },
};

/** The exit code of a shell that gets some input and then EOF. */
async function codeOf(
  [file = "", ...args]: readonly string[],
  input: string | Buffer,
  env: NodeJS.ProcessEnv = process.env,
): Promise<number> {
  const child = spawn(file, args, { stdio: ["pipe", "ignore", "ignore"], env });
  child.stdin.end(input);
  const [code] = await once(child, "exit");
  return code as number;
}

test("no name of a variable is lost", () => {
  const env = Object.fromEntries([["__proto__", "some text"]]);
  expect(jobText({ ...request, env }, NONCE, false)).toContain("__proto__='some text'");
});

test.each(["/bin/sh", "bash"])(
  "variables of the image with one letter reach jobs as they are, from %s",
  async (sh) => {
    const letters = [..."abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"];
    const env = Object.fromEntries(letters.map((letter) => [letter, `${letter} of the image`]));
    const check = letters.map((letter) => `[ "$${letter}" = "${letter} of the image" ] || exit 1`).join("\n");
    const job: JobRequest = { ...request, argv: ["/bin/sh", "-c", `${check}\nexit 7`] };
    const lane = PLAIN_START + LANE_BOOT + readyCommand(NONCE);
    const first = jobText({ ...job, argv: ["/bin/sh", "-c", "exit 0"] }, NONCE, false);
    const questions = [OOM_KILLS_COMMAND, terminateCommand({ pid: 1, startTime: "0", unsure: true })];
    const asked = questions.map((question) => askCommand(NONCE, question)).join("");
    const all = { PATH: process.env.PATH, ...env };
    expect(await codeOf([sh], lane + first + asked + jobText(job, NONCE, false), all)).toBe(7);
    expect(await codeOf([sh, "-c", PRESTARTED_SHELL], prestartedJobText(job, NONCE), all)).toBe(7);
  },
);

test.each(["PS1", "PS2", "PIPESTATUS"])("a shell that is bash passes on the variable %s", async (name) => {
  const { PATH } = process.env;
  const job: JobRequest = { ...request, argv: ["printenv", name], env: { [name]: "of the request" } };
  for (const terminal of [undefined, { columns: 80, rows: 24 }]) {
    const { argv, env, goAhead } = plainJobCommand({ ...job, terminal }, NONCE);
    expect(await codeOf(["bash", ...argv.slice(1)], goAhead, { PATH, ...env })).toBe(0);
  }
  expect(await codeOf(["bash", "-c", PRESTARTED_SHELL], prestartedJobText(job, NONCE))).toBe(0);
  expect(await codeOf(["bash"], PLAIN_START + LANE_BOOT + jobText(job, NONCE, false))).toBe(0);
});

// The engine reports this code if output holds up the markers.
test("every kind of shell ends with the exit code of its job", async () => {
  const plain = plainJobCommand(request, NONCE);
  expect(await codeOf(plain.argv, plain.goAhead)).toBe(7);
  expect(await codeOf(["/bin/sh", "-c", PRESTARTED_SHELL], prestartedJobText(request, NONCE))).toBe(7);
  const lane = PLAIN_START + LANE_BOOT;
  const job = (code: number): string =>
    jobText({ ...request, argv: ["/bin/sh", "-c", `exit ${code}`] }, NONCE, false);
  expect(await codeOf(["/bin/sh"], lane + job(7))).toBe(7);
  expect(await codeOf(["/bin/sh"], lane + job(7) + job(3))).toBe(3);
  // Not that of the job before.
  expect(await codeOf(["/bin/sh"], `${lane}${job(7)}_n=x _s=; exit 5\n`)).toBe(5);
});

test("an undumpable lane runs Berth's own scripts in a fork, which changes nothing of the lane", async () => {
  const own = (script: string): string =>
    jobText({ ...request, argv: ["/bin/sh", "-c", script], isOwnScript: true }, NONCE, true);
  const lane = PLAIN_START + LANE_BOOT;
  expect(own("exit 7")).not.toContain("exec");
  expect(await codeOf(["/bin/sh"], lane + own("exit 7"))).toBe(7);
  const hostile = "trap 'exit 9' 0; set -- a; cd /; umask 777; A() { :; }; J() { :; }; _n=x _s=5; exit 8";
  expect(await codeOf(["/bin/sh"], lane + own(hostile) + own("exit 3"))).toBe(3);
  // The command line of another program is never evaluated.
  const { argv } = request;
  expect(jobText({ ...request, argv }, NONCE, true)).toContain("exec");
  expect(jobText({ ...request, argv, isOwnScript: true }, NONCE, false)).toContain("exec");
  expect(prestartedJobText({ ...request, argv, isOwnScript: true }, NONCE)).toContain("exec");
});
