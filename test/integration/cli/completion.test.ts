import { execFile } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { quote } from "../../../src/base/shell-quote.ts";
import { MAIN, ServeProcess } from "../../support/program.ts";
import { runHere } from "../../support/program-here.ts";
import { TmuxTerminal } from "../../support/tmux.ts";

const run = promisify(execFile);
const PATIENCE = { timeout: 60_000 };

let service: ServeProcess;
let dir: string;
let env: Record<string, string>;
let sandbox: string;
let job: string;
beforeAll(async () => {
  service = await ServeProcess.start(["--engine", "bubblewrap"]);
  dir = await mkdtemp(path.join(tmpdir(), "berth-completion-"));
  // The program under the name that the scripts use.
  await mkdir(path.join(dir, "bin"));
  const program = path.join(dir, "bin", "berth");
  await writeFile(program, `#!/bin/sh\nexec ${quote(process.execPath)} ${quote(MAIN)} "$@"\n`);
  await chmod(program, 0o755);
  await mkdir(path.join(dir, "here"));
  await writeFile(path.join(dir, "here", "local-file"), "");
  env = {
    PATH: `${path.join(dir, "bin")}:${process.env.PATH}`,
    HOME: dir,
    BERTH_ADDRESS: service.address,
  };
  sandbox = await ok("create", "--id", "box-1");
  await ok("exec", sandbox, "--", "sh", "-c", "mkdir -p deep/er; touch 'deep/a file'");
  job = await ok("exec", "-d", sandbox, "--", "sleep", "1000");
});
afterAll(async () => {
  await service?.stop();
  await rm(dir, { recursive: true });
});

async function ok(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await runHere(args, { env: { BERTH_ADDRESS: service.address } });
  if (code !== 0) throw new Error(`berth ${args.join(" ")} exited with ${code}: ${stderr}`);
  return stdout.trimEnd();
}

/** Lines as typed before Tab, and what each becomes. */
const TYPED: [line: string, becomes: () => string][] = [
  ["berth comp", () => "berth completion "],
  ["berth workspace lo", () => "berth workspace lookup "],
  ["berth exec --tim", () => "berth exec --timeout "],
  ["berth exec b", () => `berth exec ${sandbox} `],
  ["berth top b", () => `berth top ${sandbox} `],
  ["berth kill p", () => `berth kill ${job} `],
  ["berth ls --state=pau", () => "berth ls --state=paused "],
  // Neither a sandbox nor a directory is a complete path.
  ["berth cp b", () => `berth cp ${sandbox}:`],
  ["berth cp box-1:de", () => `berth cp ${sandbox}:deep/`],
  ["berth cp box-1:deep/e", () => `berth cp ${sandbox}:deep/er/`],
  ["berth cp box-1:deep/a\\ f", () => `berth cp ${sandbox}:deep/a\\ file `],
  ["berth cp local", () => "berth cp local-file "],
];

describe.each<[string, [string, string, ...string[]], string]>([
  ["bash", ["bash", "--norc", "--noprofile", "-i"], ""],
  ["zsh", ["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -D; "],
])("at a terminal with %s", (shell, command, before) => {
  let terminal: TmuxTerminal;
  beforeAll(async () => {
    terminal = await TmuxTerminal.start({ command, env: { ...env, PS1: "$ " }, columns: 120 });
    await terminal.enter(
      `PS1='> '; cd ${path.join(dir, "here")}; ${before}source <(berth completion ${shell}); echo "rea"dy`,
    );
    // What is typed before the prompt is echoed unchanged, without editing.
    await terminal.shows(/^ready\n>$/m);
  });
  afterEach(async () => {
    await terminal.press("C-u");
    // zsh sometimes leaves a list below.
    await terminal.shows(/^>$/m);
  });
  afterAll(() => terminal?.dispose());

  test.each(TYPED)("a shell at a terminal completes %s", async (line, becomes) => {
    // The text after it shows whether there is a space.
    const wanted = `> ${becomes()}x`;
    await expect
      .poll(async () => {
        // On a busy machine the service may not answer in time. Then the line stays as it was typed.
        await terminal.press("C-u");
        await terminal.type(`${line}\tx`);
        return terminal.shows((screen) => screen.includes(wanted) || screen.includes(`> ${line}x`));
      }, PATIENCE)
      .toContain(wanted);
  });

  test("values are listed where there is a choice", async () => {
    await terminal.type(`berth runs \t\t`);
    await terminal.shows((screen) => ["cancel", "watch", "show"].every((word) => screen.includes(word)));
  });
});

describe("with fish", () => {
  const candidates = async (line: string) => {
    const script = `berth completion fish | source; complete -C ${quote(line)}`;
    const { stdout } = await run("fish", ["--no-config", "-c", script], {
      env: { ...env, TERM: "dumb" },
      cwd: path.join(dir, "here"),
    });
    return stdout.trimEnd().split("\n");
  };

  test.each(TYPED)("fish completes %s", async (line, becomes) => {
    const word = becomes()
      .trimEnd()
      .split(/(?<!\\) /)
      .at(-1)
      ?.replaceAll("\\", "");
    const words = async () => (await candidates(line)).map((one) => one.split("\t")[0]);
    await expect.poll(words, PATIENCE).toEqual([word]);
  });

  test("describes each value", async () => {
    const boxes = () => candidates("berth exec ");
    await expect.poll(boxes, PATIENCE).toEqual([expect.stringMatching(/^box-1\trunning berth\/test/)]);
    expect(await candidates("berth comp")).toEqual([
      "completion\tprint a shell's completion script for berth",
    ]);
  });
});

test("a missing service adds nothing and prints nothing", async () => {
  const { code, stdout, stderr } = await runHere(["completion", "bash", "--", "exec", ""], {
    env: { BERTH_ADDRESS: "unix:/no/such/berth.sock" },
  });
  expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: "words\n", stderr: "" });
});

test.each([
  ["", "127.0.0.1", {}],
  // The program first asks whether it speaks TLS.
  [" in the network", "0.0.0.0", { BERTH_TOKEN: "berth_secret" }],
])("a service%s that does not answer holds the shell for a second", async (_, address, token) => {
  let asked = Promise.withResolvers<number>();
  const silent = createServer((socket) => {
    socket.on("error", () => {}).once("data", () => asked.resolve(performance.now()));
  });
  silent.listen(0, "127.0.0.1");
  await once(silent, "listening");
  const { port } = silent.address() as AddressInfo;
  const heldMs = async (): Promise<number> => {
    asked = Promise.withResolvers();
    const { code, stdout } = await runHere(["completion", "bash", "--", "exec", ""], {
      env: { BERTH_ADDRESS: `${address}:${port}`, ...token },
    });
    expect({ code, stdout }).toEqual({ code: 0, stdout: "words\n" });
    return performance.now() - (await asked.promise);
  };
  // A longer limit holds the shell each time, a busy machine only sometimes.
  await expect.poll(heldMs, { timeout: 120_000 }).toBeLessThan(3_000);
  silent.close();
});
