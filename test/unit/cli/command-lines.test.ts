import { describe, expect, test } from "vitest";
import { runHere } from "../../support/program-here.ts";

test.each<[string[], string]>([
  [
    ["kill", "--signal", "LOUD", "x"],
    '--signal: "LOUD" is not a signal; write TERM, SIGTERM or a number from 1 to 64',
  ],
  [["kill", "-s", "65", "x"], '--signal: "65" is not a signal'],
  [["kill"], "missing required argument 'process|sandbox'"],
  [["update", "x"], "say what to change: --label, --remove-label, --idle-timeout or --max-lifetime"],
  [["update", "-l", "a", "x"], '--label: "a" is not of the form KEY=VALUE'],
  [["update", "-l", "a=1", "--remove-label", "a", "x"], '--remove-label: "a" is set by --label as well'],
  [["update", "--idle-timeout", "soon", "x"], '--idle-timeout: "soon" is not a duration'],
  [["wait", "--timeout", "5", "x"], '--timeout: "5" has no unit; for seconds write 5s'],
  [
    ["inspect", "--type", "thing", "x"],
    "'thing' is invalid. Allowed choices are sandbox, process, run, workspace",
  ],
  [["ls", "-q", "--json"], "--json, --quiet and --format cannot be used together: choose one"],
  [["ps", "-q", "--format", "json", "x"], "--json, --quiet and --format cannot be used together"],
  [["top", "-l", "a=b", "x"], "--label and ids cannot be used together: each says which sandboxes"],
  [
    ["ls", "--format", "yaml"],
    "--format: \"yaml\" is not a format; write json, table or a template, as '{{.ID}}'",
  ],
  [
    ["ls", "--format", "{{.id}} {{.iamge}}"],
    '--format: {{.iamge}}: there is no field "iamge"; there are: ID, STATE, IMAGE',
  ],
  [["session", "ls", "--format", "{{.ID"], '--format: "{{" has no "}}" after it'],
  [["ls", "--state", "sleeping"], '--state: "sleeping" is not one of creating, running, paused'],
  [["runs", "ls", "--state", "walking"], '--state: "walking" is not one of idle, running, finished, error'],
  [
    ["create", "-v", "./data:/data"],
    '--volume: "./data:/data": a directory is named by its absolute path; write',
  ],
  [
    ["run", "--mount", "type=x", "--", "true"],
    '--mount: "type=x": type is neither workspace nor bind; write',
  ],
  [["ls", "--tenant", "☃"], '--tenant: "☃" is not the name of a tenant'],
  [["completion", "tcsh"], "'tcsh' is invalid for argument 'shell'. Allowed choices are bash, zsh, fish"],
  [["create", "--id", ""], "--id: the id is empty; name one, or leave --id out"],
  [["session", "create", "bash", "--workspace", ""], "--workspace: the id is empty"],
  [["session", "create", "bash", "--sandbox", ""], "--sandbox: the id is empty"],
  [["help", "exce"], "unknown command 'exce'\n(Did you mean exec?)"],
  [["help", "session", "craete"], "unknown command 'craete'"],
  [["inspect", "--format", "yaml", "x"], '--format: "yaml" is not a format; write json or a template'],
])("%j is a wrong command line", async (args, problem) => {
  const { code, stdout, stderr } = await runHere(args);
  expect([code, stdout]).toEqual([2, ""]);
  expect(stderr).toMatch(/^berth: /);
  expect(stderr).toContain(problem);
});

test("an empty worker, as of a variable that is not set, does not mean every worker", async () => {
  for (const command of ["ls", "rm", "create bash"]) {
    const { code, stderr } = await runHere(["session", ...command.split(" "), "-w", ""]);
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: "berth: --worker: the id is empty; name one, or leave --worker out\n",
    });
  }
});

test("binary data does not get between the lines of JSON", async () => {
  expect(await runHere(["tool", "run", "--json", "-o", "-", "vm:screenshot"])).toEqual({
    code: 2,
    stdout: "",
    stderr: "berth: --json and -o - cannot be used together: both write to stdout\n",
  });
});

test.each([
  [["help", "session", "create"], "session create"],
  [["help", "session"], "session"],
  [["help", "exec", "x"], "exec"],
])("%j shows the help of that command", async (args, command) => {
  const { code, stdout } = await runHere(args);
  expect(code).toBe(0);
  expect(stdout).toContain(`Usage: berth ${command} [options]`);
});

describe.each([
  ["--help"],
  ["help"],
  ["help", "session"],
  ["run", "--help"],
  ["session", "create", "-h"],
  ["--version"],
  ["version"],
  ["completion", "bash"],
  ["doctor"],
  ["doctor", "--json"],
])("%s %s %s", (...args: string[]) => {
  const failing = (code: string) =>
    runHere(
      args.filter((word) => word !== undefined),
      { stdoutError: Object.assign(new Error(`${code}: a device`), { code }) },
    );

  test("fails if its output cannot be written", async () => {
    expect(await failing("ENOSPC")).toMatchObject({
      code: 1,
      stderr: "berth: stdout cannot be written: ENOSPC: a device\n",
    });
  });

  test("ends as by SIGPIPE if its reader is gone", async () => {
    expect(await failing("EPIPE")).toMatchObject({ code: 141, stderr: "" });
  });
});
