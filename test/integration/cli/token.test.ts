import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Berth } from "../../../clients/typescript/src/node.ts";
import { containersOf } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { type ProgramEnd, runProgram, ServeProcess } from "../../support/program.ts";
import { runProgramHere } from "../../support/program-here.ts";
import { newDataDir } from "../../support/settings.ts";

const run = promisify(execFile);
const newFile = () => path.join(mkdtempSync(path.join(newDataDir(), "cli-")), "tokens.yaml");
const TOKEN = /^berth_([a-z0-9]+)_([0-9A-Za-z]{43})\n$/;

async function create(file: string, ...args: string[]): Promise<string> {
  return tokenOf(await runProgramHere(["token", "create", "--tokens", file, ...args]));
}

function tokenOf({ stdout, stderr, exitCode }: ProgramEnd): string {
  expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
  expect(stdout.toString()).toMatch(TOKEN);
  expect(stderr).not.toContain(TOKEN.exec(stdout.toString())?.[2]);
  return stdout.toString().trim();
}

describe("berth token", () => {
  test("works on Node 20", async () => {
    const file = newFile();
    const old =
      "data:text/javascript,delete Promise.withResolvers; delete Promise.try; delete Array.fromAsync";
    const env = { BERTH_TOKENS: file, NODE_OPTIONS: `--import ${JSON.stringify(old)}` };
    const { exitCode, stdout, stderr } = await runProgram(["token", "create", "--tenant", "acme"], { env });
    expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
    const [, id = ""] = TOKEN.exec(stdout.toString()) ?? [];
    const revoked = await runProgram(["token", "revoke", id], { env });
    expect({ ...revoked, stdout: revoked.stdout.toString() }).toMatchObject({
      exitCode: 0,
      stdout: `${id}\n`,
    });
  });

  test("creates the file, lists its tokens and removes them, and keeps comments", async () => {
    const file = newFile();
    const token = await create(file, "--tenant", "acme", "--note", "a dashboard: x");
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const [, id = "", secret = ""] = TOKEN.exec(`${token}\n`) ?? [];
    expect(readFileSync(file, "utf8")).not.toContain(secret);
    const commented = readFileSync(file, "utf8")
      .replace("tenants:", "# ours\ntenants:")
      .replace("- id", "# theirs\n  - id");
    writeFileSync(file, commented);
    await create(file, "--tenant", "other", "--scope", "read-only", "--expires", "30d");
    expect(readFileSync(file, "utf8")).toMatch(/# ours\n(.*\n)*.*# theirs/);
    const list = (...args: string[]) =>
      runProgramHere(["token", "ls", ...args], { env: { BERTH_TOKENS: file } });
    const table = (await list()).stdout.toString();
    expect(table).toMatch(
      /^ID +TENANT +SCOPE +EXPIRES +NOTE\n\S+ +acme +user +never +a dashboard: x\n\S+ +other +read-only +in 29d 23h\n$/,
    );
    expect((await list("--format", "{{.ID}} {{.note}}")).stdout.toString()).toContain(
      `${id} a dashboard: x\n`,
    );
    expect(JSON.parse((await list("--json")).stdout.toString()).tokens[0]).toEqual({
      id,
      tenant: "acme",
      scope: "user",
      isExpired: false,
      note: "a dashboard: x",
    });
    const revoked = await runProgramHere(["token", "revoke", "--tokens", file, id, "nope"]);
    expect(revoked).toMatchObject({ exitCode: 1, stderr: `berth: ${file} has no token "nope"\n` });
    expect(revoked.stdout.toString()).toBe(`${id}\n`);
    expect((await list("-q")).stdout.toString()).toMatch(/^\w+\n$/);
    expect(readdirSync(path.dirname(file))).toEqual(["tokens.yaml"]);
  });

  test("names a token that it could not print", async () => {
    const file = newFile();
    const within = ["sh", "-c", 'exec "$@" >/dev/full', "sh"];
    const { exitCode, stderr } = await runProgram(["token", "create", "--tokens", file, "--tenant", "acme"], {
      within,
    });
    const advice = /^The token was created, and is kept nowhere\. Revoke it with: berth token revoke (\w+)$/;
    const [failure, hint = ""] = stderr.split("\n");
    expect(failure).toMatch(/^berth: stdout cannot be written: .*no space left/);
    expect(hint).toMatch(advice);
    expect(exitCode).toBe(1);
    const revoked = await runProgramHere(["token", "revoke", "--tokens", file, advice.exec(hint)?.[1] ?? ""]);
    expect(revoked).toMatchObject({ exitCode: 0 });
  });

  test("loses nothing when several programs edit at once", async () => {
    const file = newFile();
    const add = async (tenant: string): Promise<boolean> => {
      const { exitCode, stderr } = await runProgram([
        "token",
        "create",
        "--tokens",
        file,
        "--tenant",
        tenant,
      ]);
      // On a busy machine the others may need longer than it waits for them.
      if (stderr.includes("is being changed by another program; try again")) return false;
      expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
      return true;
    };
    const tenants = Array.from({ length: 8 }, (_, index) => `tenant-${index}`);
    await Promise.all(tenants.map((tenant) => eventually(() => add(tenant), { timeoutMs: 150_000 })));
    const { stdout } = await runProgramHere(["token", "ls", "-q", "--tokens", file]);
    expect(stdout.toString().trim().split("\n")).toHaveLength(8);
  });

  test.each([
    [["create", "--tenant", "acme"], 2, "which tokens file? Name it with --tokens FILE or BERTH_TOKENS=FILE"],
    [["create", "--tokens", "FILE"], 2, "required option '--tenant <name>' not specified"],
    [["create", "--tenant", "A b", "--tokens", "FILE"], 1, '"A b" is not the name of a tenant'],
    [
      ["create", "--tenant", "warm-pool", "--tokens", "FILE"],
      1,
      '"warm-pool" is a name that Berth uses itself',
    ],
    [
      ["create", "--tenant", "a", "--scope", "root", "--tokens", "FILE"],
      2,
      "Allowed choices are user, read-only, admin",
    ],
    [["create", "--tenant", "a", "--expires", "30", "--tokens", "FILE"], 2, '--expires: "30" has no unit'],
    [["create", "--tenant", "a", "--expires", "9999d", "--tokens", "FILE"], 2, "the maximum is 3650d"],
    [["create", "--tenant", "a", "--tokens", "/no/such/FILE"], 1, "/no/such/FILE cannot be written (ENOENT)"],
    [
      ["ls", "--tokens", "FILE"],
      1,
      "FILE does not exist\nType: berth token create --tenant default --tokens",
    ],
    [["revoke", "x", "--tokens", "FILE"], 1, "FILE does not exist"],
  ])("refuses %j", async (args, exitCode, message) => {
    const file = newFile();
    const ended = await runProgramHere(["token", ...args.map((arg) => (arg === "FILE" ? file : arg))]);
    expect({ ...ended, stderr: ended.stderr.replaceAll(file, "FILE") }).toMatchObject({
      exitCode,
      stderr: expect.stringContaining(message),
    });
  });
});

describe("clients send a token", () => {
  let service: ServeProcess;
  let token = "";
  let home = "";
  beforeAll(async () => {
    const file = newFile();
    token = await create(file, "--tenant", "acme");
    home = path.dirname(file);
    writeFileSync(path.join(home, "token"), `${token}\n`);
    service = await ServeProcess.start(["--engine", "docker", "--tokens", file], { BERTH_TOKEN: token });
    const profiles = {
      inline: { address: service.address, token },
      file: { address: `http://${service.address}`, "token-file": "../../token" },
      none: { address: service.address },
      wrong: { address: service.address, tokn: "x" },
    };
    mkdirSync(path.join(home, "config/berth"), { recursive: true });
    writeFileSync(path.join(home, "config/berth/profiles.json"), JSON.stringify(profiles));
  });
  afterAll(() => service?.stop());

  /** Sources of a token. The address is in BERTH_ADDRESS, except with profiles. */
  const sources = (): Readonly<Record<string, Readonly<Record<string, string>>>> => ({
    BERTH_TOKEN: { BERTH_ADDRESS: service.address, BERTH_TOKEN: token },
    BERTH_TOKEN_FILE: { BERTH_ADDRESS: service.address, BERTH_TOKEN_FILE: path.join(home, "token") },
    "a profile": { BERTH_PROFILE: "inline", XDG_CONFIG_HOME: path.join(home, "config") },
    "a profile's file": { BERTH_PROFILE: "file", XDG_CONFIG_HOME: path.join(home, "config") },
    "a profile without": {
      BERTH_PROFILE: "none",
      XDG_CONFIG_HOME: path.join(home, "config"),
      BERTH_TOKEN: token,
    },
  });
  const SOURCES = ["BERTH_TOKEN", "BERTH_TOKEN_FILE", "a profile", "a profile's file", "a profile without"];

  test.each(SOURCES)("from %s", async (name) => {
    const env = sources()[name] ?? {};
    expect(await runProgram(["ls"], { env })).toMatchObject({ exitCode: 0, stderr: "" });

    const before = { ...process.env };
    Object.assign(process.env, env);
    try {
      await using berth = Berth.connect();
      expect((await berth.sandboxes.stats()).totalSandboxes).toBe(0);
    } finally {
      for (const key of Object.keys(env)) {
        if (before[key] === undefined) delete process.env[key];
        else process.env[key] = before[key];
      }
    }
  });

  test("from flags", async () => {
    const at = ["--address", service.address];
    const config = { XDG_CONFIG_HOME: path.join(home, "config") };
    for (const [args, env] of [
      [["ls", ...at, "--token-file", path.join(home, "token")], {}],
      [["--profile", "inline", "ls"], config],
      // A profile on the command line overrides the environment.
      [["ls", "--profile", "inline"], { ...config, BERTH_ADDRESS: "127.0.0.1:1", BERTH_TOKEN: "wrong" }],
    ] as const) {
      expect(await runProgramHere([...args], { env })).toMatchObject({ exitCode: 0, stderr: "" });
    }
    // The token of BERTH_PROFILE is not sent to another address.
    const elsewhere = await runProgramHere(["ls", ...at], { env: { ...config, BERTH_PROFILE: "inline" } });
    expect(elsewhere).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining("The call has no token."),
    });
  });

  test.each([
    [
      ["ls"],
      {},
      1,
      "The call has no token. Send one with it: authorization: Bearer TOKEN.\nGive a token with BERTH_TOKEN",
    ],
    [["ls"], { BERTH_TOKEN: "berth_nope" }, 1, "The authorization header holds no token of Berth."],
    [["ls"], { BERTH_TOKEN: "a b" }, 2, "the token is not a token: one word of printable ASCII"],
    [["ls", "--token-file", "/no/such"], {}, 2, "token file: /no/such cannot be read (ENOENT)"],
    [["ls", "--token-file", "/dev/null"], {}, 2, "token file: /dev/null is empty"],
    [["ls", "--profile", "nope"], {}, 2, 'has no profile "nope"; it has: inline, file, none, wrong'],
    [
      ["ls", "--profile", "wrong"],
      {},
      2,
      'there is no key "tokn"; there are: address, tls-ca, client-cert, client-key, token, token-file',
    ],
    [["ls", "--profile", "inline", "--address", "x:1"], {}, 2, "a profile and an address are both given"],
    [["ls", "--token", "x"], {}, 2, "unknown option '--token'"],
  ])("%j with %j is refused with what to do", async (args, env, exitCode, message) => {
    const given = { XDG_CONFIG_HOME: path.join(home, "config"), BERTH_ADDRESS: service.address, ...env };
    expect(await runProgramHere([...args], { env: given as Record<string, string> })).toMatchObject({
      exitCode,
      stderr: expect.stringContaining(message),
    });
  });

  test("no token is in the arguments of a process, or in a container", async () => {
    const env = { BERTH_ADDRESS: service.address, BERTH_TOKEN: token };
    const running = service.begin(["run", "--", "sh", "-c", "env; cat /proc/*/environ; sleep 60"], { env });
    let output = "";
    running.stdout.on("data", (data: Buffer) => (output += data));
    const containers = await eventually(
      async () => {
        const found = await containersOf(service.instance);
        return output.includes("PATH=") && found.length > 0 ? found : undefined;
      },
      { describe: () => output },
    );
    const lines = readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map((pid) => readOrNothing(`/proc/${pid}/cmdline`));
    expect(lines.some((line) => line.includes(service.instance) || line.includes("run"))).toBe(true);
    const secret = token.slice(-43);
    expect(lines.filter((line) => line.includes(secret))).toEqual([]);
    for (const { Id } of containers) {
      const { stdout } = await run("docker", ["inspect", Id]);
      expect(stdout).toContain(service.instance);
      expect(stdout).not.toContain(secret);
    }
    expect(output).not.toContain(secret);
    running.kill("SIGINT");
    await new Promise((resolve) => running.once("close", resolve));
  });
});

function readOrNothing(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}
