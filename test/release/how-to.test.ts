import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { copyFile, cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { type Snippet, snippetsOf } from "../support/documents.ts";
import { eventually } from "../support/eventually.ts";
import { environmentOfUser } from "../support/run-document.ts";
import { scaled } from "../support/scale.ts";
import { newDataDir } from "../support/settings.ts";

const run = promisify(execFile);
/** What the compiler found out about a checkout: about another one it checks only what is different there. */
const COMPILED = ".cache/tsc.tsbuildinfo";
const compiled = path.join(newDataDir(), "tsbuildinfo");
const root = path.join(import.meta.dirname, "../..");

/** Parts of the unit tests. The ordinary run takes these; the full one takes all, as the guides say. */
const UNIT_TESTS = "test/unit/config test/unit/engine test/unit/rpc test/unit/sandboxes test/unit/sessions";

/** What a reader does with a snippet that is not shell. */
type Edit = (checkout: Checkout, text: string) => Promise<void>;

/** A copy of what is checked in, for one reader. */
class Checkout {
  readonly #directory: string;
  readonly #signal: AbortSignal;

  private constructor(directory: string, signal: AbortSignal) {
    this.#directory = directory;
    this.#signal = signal;
  }

  static async make(signal: AbortSignal): Promise<Checkout> {
    const directory = await mkdtemp(path.join(tmpdir(), "berth-how-to-"));
    const { stdout } = await run("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], {
      cwd: root,
      maxBuffer: 16 << 20,
    });
    for (const name of stdout.split("\0").filter((file) => file !== "")) {
      // A link that led back to this checkout would let commands in the copy change it.
      await cp(path.join(root, name), path.join(directory, name), {
        preserveTimestamps: true,
        verbatimSymlinks: true,
      });
    }
    await symlink(path.join(root, "node_modules"), path.join(directory, "node_modules"));
    await mkdir(path.join(directory, ".cache"));
    if (existsSync(compiled)) await copyFile(compiled, path.join(directory, COMPILED));
    return new Checkout(directory, signal);
  }

  write(name: string, text: string): Promise<void> {
    const file = path.join(this.#directory, name);
    return mkdir(path.dirname(file), { recursive: true }).then(() => writeFile(file, text));
  }

  async change(name: string, change: (text: string) => string): Promise<void> {
    const file = path.join(this.#directory, name);
    const before = await readFile(file, "utf8");
    const after = change(before);
    expect(after, `${name} stays as it was`).not.toBe(before);
    await writeFile(file, after);
  }

  /** Runs a line of shell, which has to succeed; where its comment says that it fails, to fail. */
  async shell(line: string, place: string): Promise<void> {
    const fails = /# fails\b/.test(line);
    const env = { ...environmentOfUser(), CI: "true" };
    const ended = await run("bash", ["-euc", line], {
      ...{ cwd: this.#directory, env, maxBuffer: 64 << 20, signal: this.#signal },
    }).then(
      ({ stdout }) => ({ failed: false, written: stdout }),
      (error: { stdout: string; stderr: string }) => ({
        failed: true,
        written: `${error.stdout}\n${error.stderr}`,
      }),
    );
    if (ended.failed !== fails) {
      throw new Error(`${place}: ${line}\n${fails ? "did not fail" : "failed"}:\n${ended.written}`);
    }
  }

  /** Starts a service by a line of shell, and makes a sandbox with it. */
  async serve(line: string): Promise<void> {
    const state = await mkdtemp(path.join(tmpdir(), "berth-how-to-state-"));
    const socket = path.join(state, "socket");
    const env = { ...environmentOfUser(), BERTH_LISTEN: `unix:${socket}`, BERTH_ADDRESS: `unix:${socket}` };
    const options = { cwd: this.#directory, env, signal: this.#signal };
    const command = line.replace(/ +#.*$/, "").replace(/--data-dir \S+/, `--data-dir ${state}/data`);
    const service = execFile("bash", ["-euc", `exec ${command}`], options);
    const exited = new Promise((resolve) => service.once("exit", resolve));
    try {
      await eventually(() =>
        run("bin/berth", ["create"], options).then(
          () => true,
          () => service.exitCode !== null,
        ),
      );
      expect(service.exitCode).toBeNull();
    } finally {
      service.kill("SIGTERM");
      await exited;
      await rm(state, { recursive: true, force: true });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const own = path.join(this.#directory, COMPILED);
    if (existsSync(own)) await copyFile(own, compiled);
    await rm(this.#directory, { recursive: true, force: true });
  }
}

/** Follows a guide to its end, with an edit for each snippet that is not shell, in their order. */
async function follow(name: string, edits: readonly Edit[], signal: AbortSignal): Promise<void> {
  const snippets = snippetsOf(name);
  const rest = [...edits];
  expect(snippets.filter(({ language }) => language !== "sh")).toHaveLength(edits.length);
  await using checkout = await Checkout.make(signal);
  for (const snippet of snippets) {
    if (snippet.language === "sh") await followShell(checkout, snippet);
    else await rest.shift()?.(checkout, snippet.text);
  }
}

async function followShell(checkout: Checkout, { place, text }: Snippet): Promise<void> {
  for (const line of text.replaceAll("\\\n", "").trimEnd().split("\n")) {
    // Whatever of the contract a new engine does not fulfil yet takes its time to fail.
    if (line.endsWith("# all of them")) continue;
    // Of the unit tests, which run anyway, those that read what the guides change.
    const chosen = line.replace(/npm run test:unit$/, scaled("$&", `$& -- ${UNIT_TESTS}`));
    if (line.startsWith("bin/berth serve")) await checkout.serve(line);
    else await checkout.shell(chosen, place);
  }
}

const append = (name: string): Edit => {
  return (checkout, text) => checkout.change(name, (before) => `${before}\n${text}`);
};
const asFile = (name: string): Edit => {
  return (checkout, text) => checkout.write(name, text);
};
const after = (name: string, line: string): Edit => {
  return (checkout, text) =>
    checkout.change(name, (before) => before.replace(line, () => `${line}\n${text}`));
};
const before = (name: string, line: string): Edit => {
  return (checkout, text) => checkout.change(name, (whole) => whole.replace(line, () => `${text}${line}`));
};
const replace = (name: string, from: string | RegExp, to: string): Edit => {
  return (checkout) => checkout.change(name, (whole) => whole.replace(from, () => to));
};
const all = (...edits: readonly Edit[]): Edit => {
  return async (checkout, text) => {
    for (const edit of edits) await edit(checkout, text);
  };
};

const TIMEOUT = { timeout: 900_000 };

test("adding an RPC goes as the guide says", TIMEOUT, async ({ signal }) => {
  const handler = "src/rpc/sandbox-service.ts";
  const edits = [
    after("proto/berth/v1/sandbox.proto", "service SandboxService {"),
    append("proto/berth/v1/sandbox.proto"),
    before("src/sandboxes/manager.ts", "\n  /** Freezes every process."),
    all(
      before(handler, "\n  async pauseSandbox("),
      replace(
        handler,
        "import ",
        'import type { GetSandboxOomKillsRequest, GetSandboxOomKillsResponseSchema } from "../../gen/ts/berth/v1/sandbox_pb.js";\nimport ',
      ),
    ),
    all(
      after("test/support/wire.ts", "WorkspaceAnswers {"),
      replace(
        "test/integration/rpc/hostile-input.test.ts",
        "DeleteSandbox GetSandboxUsage",
        "DeleteSandbox GetSandboxOomKills GetSandboxUsage",
      ),
    ),
    asFile("test/integration/sandboxes/oom-kills.test.ts"),
  ];
  await follow("docs/how-to/add-an-rpc.md", edits, signal);
});

test("adding an engine goes as the guide says", TIMEOUT, async ({ signal }) => {
  const edits = [
    all(
      before("src/engine/choose.ts", "  if (settings.engine ==="),
      replace(
        "src/engine/choose.ts",
        "import ",
        'import { MemoryEngine } from "./memory/engine.ts";\nimport ',
      ),
    ),
    asFile("test/contract/engine/memory.test.ts"),
  ];
  await follow("docs/how-to/add-an-engine.md", edits, signal);
});

test("adding a session type goes as the guide says", TIMEOUT, async ({ signal }) => {
  const bad = "test/integration/sessions/bad-input.test.ts";
  const edits = [
    asFile("src/sessions/types/counter/type.ts"),
    all(
      before("src/sessions/parts.ts", "    codeType("),
      replace(
        "src/sessions/parts.ts",
        "import ",
        'import { counterType } from "./types/counter/type.ts";\nimport ',
      ),
    ),
    all(
      asFile("test/integration/sessions/counter.test.ts"),
      replace(bad, '    "files:edit"', '    "counter:add",\n    "files:edit"'),
      replace(bad, '"code", "files"', '"code", "counter", "files"'),
    ),
  ];
  await follow("docs/how-to/add-a-session-type.md", edits, signal);
});
