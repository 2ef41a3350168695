import { expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { rawRun } from "../../support/docker.ts";

const COMMAND = ["python3", "-m", "test", "-v", "test_json", "test_re", "test_textwrap"];

const app = useApp();

test("CPython's regression tests have the same results through Exec as without Berth", async () => {
  const { sandbox_id: sandboxId } = await app.client.createSandbox();
  const raw = await rawRun(app.instance, sandboxId, COMMAND, "/workspace");
  const execution = app.client.exec(sandboxId, COMMAND);
  let outputs = 0;
  execution.call.on("data", ({ event }) => {
    if (event === "output") outputs++;
  });
  const ours = await execution.result;

  expect(raw.exitCode).toBe(0);
  expect(ours.exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: raw.exitCode, signal: 0 });
  expect(stable(ours.stdout)).toEqual(stable(raw.stdout));
  expect(stable(ours.stderr)).toEqual(stable(raw.stderr));
  // Otherwise two empty or truncated outputs would count as equal.
  expect(ours.stdout.toString()).toMatch(/^All 3 tests OK\.$/m);
  expect(ours.stdout.length).toBe(ours.exit.stdout_bytes);
  expect(stable(ours.stdout).length).toBeGreaterThan(300);
  // It arrived while the tests ran, not in one piece at the end.
  expect(outputs).toBeGreaterThan(10);
});

/**
 * The lines of an output, without what differs between any two runs of the same command: the machine's load and the
 * time of day in each progress line, which says of a slow test before that it passed, durations, the pid in the name of
 * the working directory, and addresses of objects, which are random in each process.
 */
function stable(output: Buffer): string[] {
  return output
    .toString()
    .replaceAll(/^\d+:\d\d:\d\d( load avg: \d+\.\d+)?/gm, "<time and load>")
    .replaceAll(/^(<time and load> .*) -- \w+ passed in .*$/gm, "$1")
    .replaceAll(/\b\d+(\.\d+)?( ?ms| ?sec| min| hour|s)( \d+ (min|sec))?\b/g, "<duration>")
    .replaceAll(/test_python_\S+/g, "<directory of the run>")
    .replaceAll(/0x[0-9a-f]{6,}/g, "<address>")
    .split("\n");
}
