import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TEST_IMAGE } from "../../support/images.ts";
import { ServeProcess } from "../../support/program.ts";
import { type HereOptions, runHere } from "../../support/program-here.ts";

let service: ServeProcess;
let shared: string;
beforeAll(async () => {
  shared = await mkdtemp(path.join(tmpdir(), "berth-mounts-"));
  service = await ServeProcess.start(["--allow-host-path", shared]);
});
afterAll(async () => {
  await service?.stop();
  await rm(shared, { recursive: true });
});

const berth = (args: string[], { env, ...options }: HereOptions = {}) =>
  runHere(args, { ...options, env: { BERTH_ADDRESS: service.address, ...env } });

/** Runs a command that must succeed. Returns its stdout without the last newline. */
async function ok(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await berth(args);
  if (code !== 0) throw new Error(`berth ${args.join(" ")} exited with ${code}: ${stderr}`);
  return stdout.trimEnd();
}

describe("lists", () => {
  test("of sandboxes and processes: IDs only, templates, custom tables, JSON, and by state", async () => {
    const [red, blue] = [await ok("create", "-l", "team=red"), await ok("create", "-l", "team=blue")];
    await ok("pause", blue);
    expect(await ok("ls", "-q")).toBe(`${blue}\n${red}`);
    expect(await ok("ls", "-q", "--state", "running")).toBe(red);
    expect(await ok("ls", "-q", "--state", "running", "--state", "paused", "-l", "team=blue")).toBe(blue);
    expect(await ok("ls", "-q", "--state", "terminated")).toBe("");
    expect(await ok("ls", "--format", "{{.ID}} {{.State}} {{.spec.labels.team}} {{.state}}")).toBe(
      `${blue} paused blue paused\n${red} running red running`,
    );
    expect(await ok("ls", "--format", "table {{.spec.labels.team}}\\t{{.Image}}")).toBe(
      `TEAM  IMAGE\nblue  ${TEST_IMAGE}\nred   ${TEST_IMAGE}`,
    );
    const lines = (await ok("ls", "--format", "json")).split("\n").map((line) => JSON.parse(line));
    // Each call computes a new expiry.
    const known = ({ sandboxId, state, spec }: Record<string, unknown>) => ({ sandboxId, state, spec });
    expect(lines.map(known)).toEqual(JSON.parse(await ok("ls", "--json")).sandboxes.map(known));

    const process = await ok("exec", "-d", red, "--", "sh", "-c", "exit 3");
    await berth(["wait", process]);
    expect(await ok("ps", "-q", red)).toBe("");
    expect(await ok("ps", "-aq", red)).toBe(process);
    expect(await ok("inspect", "-f", "{{.exitStatus.exitCode}}", process)).toBe("3");
    expect(await ok("ps", "-a", "--format", "{{.State}}|{{json .argv.args}}", red)).toBe(
      'exited (3)|["sh","-c","exit 3"]',
    );
    await ok("rm", red, blue);
  });

  test("of workspaces, sessions, tools and runs take the same options", async () => {
    await ok("workspace", "create", "first area");
    expect(await ok("workspace", "ls", "-q")).toBe("first area");
    expect(await ok("workspace", "ls", "--format", "{{.ID}}, {{.refs}}")).toBe("first area, 0");
    const session = await ok("session", "create", "bash", "-w", "ann");
    expect(await ok("session", "ls", "-q", "--type", "bash")).toBe(session);
    expect(await ok("session", "ls", "-q", "--type", "python")).toBe("");
    expect(await ok("session", "ls", "--format", "{{.worker}} {{.resourceType}}")).toBe("ann bash");
    await ok("session", "rm", "-w", "ann");
    expect((await ok("tool", "ls", "-q", "bash")).split("\n")).toContain("bash:run");
    expect(await ok("runs", "ls", "-q", "--all")).toBe("");
    expect(await ok("runs", "ls", "--state", "error")).toBe("ID  STATE  STEP  AGE  SANDBOX  NAME");
  });

  test("of what sandboxes use begin with the one that uses the most CPU time", async () => {
    const [busy, idle] = [await ok("create", "--memory", "256MiB"), await ok("create")];
    await ok("exec", "-d", busy, "--", "sh", "-c", "while :; do :; done");
    await expect.poll(() => ok("top", "-q")).toBe(`${busy}\n${idle}`);
    const [headings, first] = (await ok("top", busy)).split("\n");
    expect(headings).toMatch(/^ID +STATE +CPU +MEMORY +PIDS$/);
    expect(first).toMatch(
      new RegExp(`^${busy} +running +\\d+\\.\\d% +[\\d.]+ [KM]iB / 256 MiB +\\d+ / 512$`),
    );
    await ok("rm", "--grace", "0s", busy, idle);
  });

  test("states are coloured on a terminal, and elsewhere only if forced", async () => {
    const sandbox = await ok("create");
    const row = async (options: HereOptions) => (await berth(["ls"], options)).stdout.split("\n")[1];
    expect(await row({ isTTY: true })).toContain(`${sandbox}  \x1b[32mrunning\x1b[39m  ${TEST_IMAGE}`);
    expect(await row({ isTTY: true, env: { NO_COLOR: "1" } })).toContain(
      `${sandbox}  running  ${TEST_IMAGE}`,
    );
    expect(await row({})).not.toContain("\x1b");
    expect(await row({ env: { FORCE_COLOR: "1" } })).toContain("\x1b[32mrunning\x1b[39m");
    expect((await berth(["ls", "-q"], { isTTY: true })).stdout).toBe(`${sandbox}\n`);
    await ok("rm", sandbox);
  });
});

describe("mounts", () => {
  test("commands start in a workspace; other workspaces and directories are mounted where the flag says", async () => {
    await ok("workspace", "create", "job");
    await ok("workspace", "create", "cache:1");
    await writeFile(path.join(shared, "given"), "from outside");
    const mounts = ["--workspace", "job", "--mount", "type=workspace,source=cache:1,target=/cache"];
    const script = "echo kept > here; echo more > /cache/file; cat /given/given; touch /given/x 2>&1 || true";
    const { code, stdout } = await berth([
      "run",
      ...mounts,
      "-v",
      `${shared}:/given:ro`,
      "--",
      "sh",
      "-c",
      script,
    ]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^from outside.*Read-only file system\n$/s);

    const cache = ["--mount", "type=workspace,source=cache:1,target=/cache,ro"];
    const sandbox = await ok("create", "-w", "/elsewhere", "--workspace", "job", ...cache);
    expect(
      await ok("exec", sandbox, "--", "sh", "-c", "pwd; cat here /cache/file; [ -w /cache ] || echo ro"),
    ).toBe("/elsewhere\nkept\nmore\nro");
    await ok("rm", sandbox);
  });

  test("a workspace that does not exist is refused with how to make one", async () => {
    const { code, stderr } = await berth(["create", "--workspace", "none"]);
    const hint = "To list them: berth workspace ls. To create one: berth workspace create ID";
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: `berth: There is no workspace "none".\n${hint}\n`,
    });
  });

  test.each<[string[], string]>([
    [["-v", "/etc:/data"], "^berth: .*--allow-host-path"],
    [["-v", "job:/proc/x"], "^berth: .*/proc"],
    [["-v", "job:/a", "-v", "job:/a"], "^berth: .*is the target of another mount too"],
  ])("%j is refused by the service, and its message is shown", async (mounts, problem) => {
    await ok("workspace", "create", "job");
    const { code, stdout, stderr } = await berth(["create", ...mounts]);
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toMatch(new RegExp(problem));
  });
});
